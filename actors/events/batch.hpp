// The token between operators: up to 4,096 messages as columns, and one guarantee after them.
//
//   Batch batch(schema);
//   batch.insert(1, 0, 10, {Value(std::int64_t(7))});   // key, [begin, end), payload
//   batch.retract(1, 4);                                // the lifetime of 1 ends at 4
//   batch.guarantee = 3;                                // nothing with sync <= 3 comes any more
//
// A message is an insert or a retraction. A retraction shrinks: to `begin` it removes the event.
// Sync of an insert is its begin, of a retraction the new end.
//
// Invariants
// 1. All columns have `size()` entries, and their types are those of the schema.
// 2. A key ties one insert to its retractions. Keys of a stream are unique; the query issues those
//    behind an ingress.
// 3. Behind an ingress a retraction is complete: it carries begin, payload and the old end, so an
//    operator without state needs none for retractions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <troupe/actors/events/schema.hpp>
#include <troupe/actors/events/time.hpp>

namespace troupe::events {

using Key = std::uint64_t;
/// The alternatives are in the order of `Type`.
using Column =
    std::variant<std::vector<std::int64_t>, std::vector<double>, std::vector<std::string>>;

Column column_of(Type type);
inline Value value_at(const Column& column, std::size_t i) {
  return std::visit([i](const auto& values) { return Value(values[i]); }, column);
}

struct Batch {
  static constexpr std::size_t kMost = 4096;  // messages a token
  static constexpr Time kInsert = kNever;     // the old end of what has none

  Batch() = default;
  explicit Batch(const Schema& schema);

  std::size_t size() const { return key.size(); }
  bool empty() const { return key.empty(); }
  bool is_insert(std::size_t i) const { return old_end[i] == kInsert; }
  Time sync(std::size_t i) const { return is_insert(i) ? begin[i] : end[i]; }
  Row row(std::size_t i) const;

  void insert(Key k, Time from, Time to, const Row& payload);
  /// Adds a retraction as users write it; an ingress completes it.
  void retract(Key k, Time new_end);
  /// Adds a complete retraction of [from, old) to [from, to).
  void shrink(Key k, Time from, Time to, Time old, const Row& payload);
  /// Adds message `i` of a batch of the same schema.
  void append(const Batch& other, std::size_t i);
  /// Adds the messages `rows` of a batch of the same schema, a column at a time.
  void append(const Batch& other, std::span<const std::uint32_t> rows);
  /// Adds the message `i` of `other` without its payload; the caller fills the columns.
  void append_times(const Batch& other, std::size_t i);
  /// Adds all messages of `other` and takes over its guarantee.
  void append(Batch&& other);
  /// Keeps the messages whose mark is not 0.
  void keep(const std::vector<std::uint8_t>& marks);
  void reserve(std::size_t n);
  /// Removes the messages; the schema and the guarantee stay.
  void clear();

  std::vector<Key> key;
  std::vector<Time> begin;
  std::vector<Time> end;      // a retraction has its new end here
  std::vector<Time> old_end;  // before a retraction; kInsert: an insert
  std::vector<Column> columns;
  Time guarantee = kNever;  // holds after the messages

 private:
  void add(Key k, Time from, Time to, Time old, const Row* payload);
};

/// Returns the messages as lines `I(1,[0,10):(7))`, `R(1,4)`, `G(3)`.
std::string text_of(const Batch& batch);

/// Throws Error (invalid_argument) that names the operator unless all columns fit the schema.
void check_schema(const Batch& batch, const Schema& schema, const std::string& name);

}  // namespace troupe::events
