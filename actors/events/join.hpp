// Temporal join: a row for each pair that agrees in the keys and lives at the same time; it lives
// for the intersection, [max begin, min end).
//
//   left.join(right, {"machine"}, {"host"})        // without keys: each pair that meets
//
// The payload is the left one and the right one without its keys; a right field whose name is taken
// gets `_right` behind it. Other conditions are a select on the output.
//
// State: both sides by key, in one bucket; an event is dropped once no later one can meet it. The
// key of an output is noted in the event that came second.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include <troupe/actors/events/operator.hpp>
#include <troupe/actors/events/row_hash.hpp>

namespace troupe::events {

class Join final : public Operator {
 public:
  /// Throws Error unless both sides have the keys, in equal number and of equal types.
  Join(std::string name, const Schema& left, const Schema& right,
       const std::vector<std::string>& left_keys, const std::vector<std::string>& right_keys,
       KeySource keys);

 private:
  struct Made {
    Key partner, key;
  };
  struct Entry {
    Key key;
    Time begin, end;
    Row row;
    std::vector<Made> made;  // with events that were there before
  };
  struct Bucket {
    std::array<std::vector<Entry>, 2> sides;
  };

  void process(std::size_t input, Batch batch) override;
  Time advance(Time g) override;
  std::size_t event_bytes() const override { return sizeof(Entry) + row_bytes(schema()); }
  void insert(std::size_t input, Bucket& bucket, const Batch& batch, std::size_t i);
  void retract(std::size_t input, Bucket& bucket, const Batch& batch, std::size_t i);
  void send(Key key, Time begin, Time end, Time old_end, const Entry& left, const Entry& right);
  static const Key* made_by(const Entry& later, const Entry& earlier);
  void forget(std::vector<Entry>& side, Time g);

  std::array<std::vector<std::size_t>, 2> key_columns_;
  std::vector<std::size_t> right_columns_;  // columns of the payload
  KeySource keys_;
  std::unordered_map<Row, Bucket, RowHash, RowEqual> buckets_;
  std::size_t events_ = 0, swept_ = 0;  // remembered now, and after the last sweep
  Row key_;                             // key of the message in hand
};

}  // namespace troupe::events
