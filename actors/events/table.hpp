// The meaning of a stream: its canonical table, and logical equivalence.
//
//   History history;  history.add(batch);          // messages in any order of arrival
//   canonical(history);                            // retractions applied, arrival forgotten
//   is_equivalent_to(a, b, 20);                    // equal in all that happens to time 20
//
// These functions are definitions. Tests compare operators with them; no operator uses them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <troupe/actors/events/batch.hpp>

namespace troupe::events {

struct Lived {
  Time begin, end;
  Row payload;
  auto operator<=>(const Lived&) const = default;
};

/// Rows in ascending order; keys are forgotten.
using Table = std::vector<Lived>;

/// All messages of a stream, and its last guarantee.
class History {
 public:
  void add(const Batch& batch);
  struct Message {
    Key key;
    Time begin, end;
    bool is_insert;
    Row payload;
  };
  const std::vector<Message>& messages() const { return messages_; }
  Time guarantee() const { return guarantee_; }

 private:
  std::vector<Message> messages_;
  Time guarantee_ = kNever;
};

/// Returns the table to time `to`: for each key the smallest end, rows that begin at or before
/// `to`, ends clipped to the time after it, empty rows left out.
Table canonical(const History& history, Time to = kForever);
/// Returns the rows that live at `at`, as points [at, at + 1).
Table canonical_at(const History& history, Time at);

/// Merges equal payloads that touch or overlap.
Table coalesce(Table table);
/// Returns for each payload its maximal intervals of constant multiplicity; a row appears as often
/// as it holds. Two tables hold the same at all times if and only if these are equal.
Table normal(const Table& table);

/// Returns whether both streams hold the same rows, counted, at all times to `to`.
bool is_equivalent_to(const History& a, const History& b, Time to = kForever);
/// Returns whether both hold the same rows, counted, at time `at`.
bool is_equivalent_at(const History& a, const History& b, Time at);

/// Returns rows of hop windows as SQL's HOP names them: [begin, end) is the window of `size` whose
/// events the snapshot of a count over lifetimes of `size` that begin at multiples of `hop` counts.
Table per_window(const Table& snapshots, Time hop, Time size);

/// Returns `[0,5):(1) [5,inf):(2)`.
std::string text_of(const Table& table);

}  // namespace troupe::events
