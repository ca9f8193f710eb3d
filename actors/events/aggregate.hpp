// Group and aggregate: for each group, one row for each interval between endpoints of its events.
//
//   stream.aggregate({"symbol"}, {count("trades"), mean("price")})
//
// State: by group, the snapshots in order of time with their totals, and the row that was sent of
// each. A message changes the snapshots that it spans, after its ends have cut them. The rows that
// a batch has changed are compared with those sent once, after the batch: a row shrinks if its
// start and its values stay, else it is removed and another one comes.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include <troupe/actors/events/operator.hpp>
#include <troupe/actors/events/row_hash.hpp>
#include <troupe/actors/events/totals.hpp>

namespace troupe::events {

class Aggregate final : public Operator {
 public:
  /// Throws Error for an unknown field, a sum of texts, or no aggregate.
  Aggregate(std::string name, const Schema& schema, const std::vector<std::string>& group_by,
            std::vector<AggregateSpec> specs, KeySource keys);

 private:
  struct Snapshot {
    Time end;
    Totals totals;
    bool is_sent = false;
    Key key = 0;  // key of the row that was sent
    Time sent_end = 0;
    Row sent = {};  // its payload
  };
  using Snapshots = std::map<Time, Snapshot>;  // by begin; they do not overlap
  struct Group {
    Snapshots snapshots;
    Time dirty_from = kForever, dirty_to = kNever;
  };
  using Groups = std::unordered_map<Row, Group, RowHash>;

  void process(std::size_t input, Batch batch) override;
  Time advance(Time g) override;
  void change(Group& group, Time begin, Time end, int by);
  void cut(Group& group, Time at);
  void send_changes(const Row& group_key, Group& group);
  void send_change(const Row& group_key, Time begin, Snapshot& snapshot);
  void forget(Group& group, Time g);

  const std::vector<std::size_t> group_columns_;
  const std::vector<AggregateSpec> specs_;
  std::vector<std::size_t> value_columns_;  // by aggregate; of a count any
  bool only_counts_ = true;
  KeySource keys_;
  Groups groups_;
  std::vector<Groups::value_type*> dirty_;
  std::size_t snapshots_ = 0, swept_ = 0;
  Row key_, values_, row_;  // parts of the message or the row in hand
};

}  // namespace troupe::events
