// Align: buffers messages, at most for B, and sends them in the order of sync.
//
//   B = kForever: until the guarantee covers them (strong);  B = 0: not at all (middle)
//
// B is application time: a message leaves when the largest sync seen, less B, has reached its own.
// An insert and the retractions of its key merge in the buffer; if nothing is left of the event,
// neither is sent. Stands behind each source (`is_ingress`: retractions are still incomplete), and,
// for outputs that never revise history, before the sink.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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
  struct Item {
    Time sync;
    bool is_retraction;  // after the inserts of its sync
    std::uint64_t arrival;
    Time arrived;  // progress of the stream when it came
    std::shared_ptr<const Batch> batch;
    std::size_t row;
  };
  struct Shrunk {
    Time end, old_end;
  };
  /// Orders a heap whose top leaves first.
  static bool leaves_after(const Item& a, const Item& b);

  void process(std::size_t input, Batch batch) override;
  Time advance(Time g) override;
  void refuse_late(Batch& batch);
  void release(const Item& item);

  Time blocking_ = 0;
  const bool is_ingress_;
  Time max_sync_ = kNever;
  std::uint64_t arrivals_ = 0;
  std::vector<Item> heap_;
  std::unordered_map<Key, Shrunk> shrunk_;  // retractions in the buffer: the last word of each key
};

}  // namespace troupe::events
