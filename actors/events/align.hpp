// Align: buffers messages, at most for B, and sends them in the order of sync.
//
//   B = kForever: until the guarantee covers them (strong);  B = 0: not at all (middle)
//
// B is application time: a message leaves when the largest sync seen, less B, has reached its own.
// An insert and the retractions of its key merge in the buffer; if nothing is left of the event,
// neither is sent. Stands behind each source (`is_ingress`: retractions are still incomplete), and,
// for outputs that never revise history, before the sink.
//
// A batch that must wait is held as it is. Its messages stand as a sorted **run** of (sync,
// arrival) in a list in which each run is at least twice as long as the next one, so a message is
// merged log(n) times at most. Messages that leave are gathered a column at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include <troupe/actors/events/operator.hpp>

namespace troupe::events {

class Align final : public Operator {
 public:
  Align(std::string name, const Schema& schema, bool is_ingress)
      : Operator(std::move(name), schema, 1), is_ingress_(is_ingress) {}

  /// Sets B. With a smaller one the buffer is sent at the next `receive`. Before the sink it is
  /// kForever for a strong query, else 0.
  /// With a larger one, messages after those that have come are in order.
  Time set_consistency(const Consistency& level) override {
    const Time old = blocking_;
    blocking_ = is_ingress_ ? level.blocking : level.is_strong() ? kForever : 0;
    return blocking_ > old && max_sync_ != kNever ? later(max_sync_, 1) : kNever;
  }

 private:
  /// A buffered message, in the order in which it leaves.
  struct Item {
    Time sync;
    std::uint64_t rank;  // retractions after the inserts of their sync; then by arrival
    bool operator<(const Item& other) const {
      return sync != other.sync ? sync < other.sync : rank < other.rank;
    }
  };
  struct Run {
    std::vector<Item> items;  // ascending
    std::size_t left = 0;     // number of those that have left
    std::size_t size() const { return items.size() - left; }
    Time first() const { return items[left].sync; }
  };
  struct Held {
    Batch batch;
    std::size_t waiting;  // messages that have not left
    Time arrived;         // progress of the stream when it came
  };
  struct Shrunk {
    Time end, old_end;
  };
  void process(std::size_t input, Batch batch) override;
  Time advance(Time g) override;
  void refuse_late(Batch& batch);
  void hold(Batch batch);
  void merge_runs();
  std::map<std::uint64_t, Held>::iterator holder(std::uint64_t arrival);
  void take(Time bound);
  void release();
  void release_changed(Held& held, std::size_t row);

  static constexpr std::uint64_t kRetraction = std::uint64_t{1} << 63;

  Time blocking_ = 0;
  const bool is_ingress_;
  Time max_sync_ = kNever;
  std::uint64_t arrivals_ = 0;
  std::vector<Run> runs_;               // none is empty
  std::map<std::uint64_t, Held> held_;  // by arrival of the first message; each has some that wait
  std::size_t waiting_ = 0;
  std::vector<Item> leaving_;  // by `take`
  std::vector<std::uint32_t> rows_;
  std::unordered_map<Key, Shrunk> shrunk_;  // retractions in the buffer: the last word of each key
};

}  // namespace troupe::events
