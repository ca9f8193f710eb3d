// Counts the work of one queue: what was enqueued, what has ended, and for how long there was any.
//
//   meter.add(QueueMeter::Work::launch);            // by the enqueuing thread
//   point.enqueued = meter.add_event();             // pieces of work that a point stands behind
//   meter.pass(point.enqueued);                     // the point was reached
//   meter.pass_event();
//
// Threads: any. A call takes about 20 ns; the clock is read when the queue becomes busy or idle.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/activity.hpp>

namespace troupe::detail {

class QueueMeter {
 public:
  enum class Work : std::uint8_t { launch, to_device, from_device, from_peer };

  void add(Work what, std::uint64_t bytes = 0) {
    const std::lock_guard lock(mutex_);
    if (enqueued_++ == ended_) busy_since_ = now_ns();
    if (what == Work::launch) {
      ++counts_.launches;
      return;
    }
    QueueActivity::Copies& copies = what == Work::to_device     ? counts_.to_device
                                    : what == Work::from_device ? counts_.from_device
                                                                : counts_.from_peer;
    ++copies.count;
    copies.bytes += bytes;
  }
  /// Counts an event, and returns the pieces of work before it.
  std::uint64_t add_event() {
    const std::lock_guard lock(mutex_);
    ++counts_.events;
    return enqueued_;
  }
  /// A graph has made so many of the launches that were counted.
  void add_graph(std::uint64_t launches) {
    const std::lock_guard lock(mutex_);
    ++counts_.graphs;
    counts_.replayed += launches;
  }
  /// The first `enqueued` pieces have ended.
  void pass(std::uint64_t enqueued) {
    const std::lock_guard lock(mutex_);
    pass_locked(enqueued);
  }
  /// One more piece has ended.
  void pass_one() {
    const std::lock_guard lock(mutex_);
    pass_locked(ended_ + 1);
  }
  void pass_event() {
    const std::lock_guard lock(mutex_);
    --counts_.events;
  }
  /// All but the name.
  QueueActivity read() const {
    const std::lock_guard lock(mutex_);
    QueueActivity now = counts_;
    now.enqueued = enqueued_;
    now.depth = enqueued_ - ended_;
    if (now.depth > 0) now.busy_ns += static_cast<std::uint64_t>(now_ns() - busy_since_);
    return now;
  }

 private:
  static std::int64_t now_ns() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  }
  void pass_locked(std::uint64_t enqueued) {
    if (enqueued <= ended_) return;
    ended_ = enqueued;
    if (ended_ == enqueued_) counts_.busy_ns += static_cast<std::uint64_t>(now_ns() - busy_since_);
  }

  mutable std::mutex mutex_;  // guards the members below
  std::uint64_t enqueued_ = 0, ended_ = 0;
  std::int64_t busy_since_ = 0;  // on the steady clock; of a queue with work
  QueueActivity counts_;
};

}  // namespace troupe::detail
