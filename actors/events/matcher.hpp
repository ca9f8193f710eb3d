// Matcher: the operator of a pattern. It keeps the events of each correlation key while a window
// reaches them, replays what a batch has changed, and sends the differences.
//
//   events ──► partition of the key ──► MatchReplay from the earliest change ──► differences
//                    ▲
//   time ──► due: an UNLESS whose scope has ended
//
// Local time is the largest sync or guarantee that came. An UNLESS is sent when its scope has
// passed by local time; a late event that negates it takes it back, and if that event is removed
// the match comes again under a new key.
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <troupe/actors/events/match_replay.hpp>
#include <troupe/actors/events/operator.hpp>
#include <troupe/actors/events/row_hash.hpp>

namespace troupe::events {

class Matcher final : public Operator {
 public:
  Matcher(std::string name, std::shared_ptr<const MatchPlan> plan, std::size_t inputs,
          KeySource keys);
  Time reach() const override;

 private:
  /// A match that was sent.
  struct Sent {
    Time begin, end;
    std::vector<Key> events;  // by leaf; 0: none
    Key key;
    Row row;
    Key ender = 0;  // the event whose end is its end; 0: none
    Time least_end = kNever;
  };
  struct Partition {
    std::vector<Instances> nodes;  // by node of the plan; nothing of the top, unless it is an event
    std::vector<Sent> sent;        // ascending by begin
    Instances gone;                // removed events, until the replay
    Time changed_from = kForever;
    Time due = kForever;
  };

  using Partitions = std::unordered_map<Row, Partition, RowHash, RowEqual>;

  void process(std::size_t input, Batch batch) override;
  Time advance(Time g) override;
  std::size_t event_bytes() const override;
  void take(const MatchPlan::Leaf& leaf, const Batch& batch);
  void insert(Partitions::value_type& entry, const MatchPlan::Leaf& leaf, const Batch& batch,
              std::size_t i);
  void retract(Partitions::value_type& entry, const MatchPlan::Leaf& leaf, const Batch& batch,
               std::size_t i);
  void shrink_end(Partition& partition, Key event, Time begin, Time end);
  void touch(Partitions::value_type& entry, Time from);
  void settle();
  void replay(Partitions::value_type& entry);
  void send_differences(Partition& partition, std::vector<Sent> before, Time from);
  Sent match_of(const Instance& instance);
  Row row_of(const Instance& instance);
  void set_due(Partitions::value_type& entry, Time due);
  void forget(Partition& partition, Time g, bool is_sweep);
  static std::size_t size_of(const Partition& partition);

  const std::shared_ptr<const MatchPlan> plan_;
  MatchReplay replay_;
  Bindings bound_;
  KeySource keys_;
  Partitions partitions_;
  std::vector<Partitions::value_type*> changed_;
  std::set<std::pair<Time, Partitions::value_type*>> timers_;
  Time now_ = kNever;      // local time
  Time settled_ = kNever;  // the guarantee up to which all matches were made
  std::size_t state_ = 0, swept_ = 0;
  Row key_;                          // correlation key in hand
  Value root_, names_, occurrence_;  // the match in hand
};

}  // namespace troupe::events
