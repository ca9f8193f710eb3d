// Deadlines: calls back at deadlines on the real clock. It has its own thread, so deadlines are met
// even if kernels and actors occupy all workers.
//
//   Deadlines deadlines([](std::uint64_t id) { ... });
//   deadlines.add(due, id);     // the first call starts the thread
//   deadlines.remove(due, id);  // no call for `id`
//
// Threads: `add` and `remove` from any thread, under any lock that `expire` does not hold while it
// adds. `expire` runs on the thread of `Deadlines`, one call at a time, with nothing locked. Cost:
// deadlines that are added in order wake no thread. The thread sleeps until the earliest deadline
// that it knew, and then checks again. Only an earlier deadline wakes it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

class Deadlines {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Deadlines(std::function<void(std::uint64_t id)> expire) : expire_(std::move(expire)) {}
  ~Deadlines() { stop(); }
  Deadlines(const Deadlines&) = delete;
  Deadlines& operator=(const Deadlines&) = delete;

  /// After `stop` nothing happens.
  void add(Clock::time_point due, std::uint64_t id);
  void remove(Clock::time_point due, std::uint64_t id);
  /// Waits for a call of `expire` that is under way; after it there are none. Must not be called by
  /// `expire`.
  void stop();

 private:
  void live();

  const std::function<void(std::uint64_t id)> expire_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::set<std::pair<Clock::time_point, std::uint64_t>> pending_;
  // when the thread, if it sleeps, looks again by itself
  Clock::time_point wakes_at_ = Clock::time_point::max();
  bool is_stopped_ = false;
  std::thread thread_;
};

}  // namespace troupe
