// Deadlines on the real clock, kept by a thread of their own: they are met however long kernels and
// actors hold the workers.
//
//   Deadlines deadlines([](std::uint64_t id) { ... });
//   deadlines.add(due, id);     // the first starts the thread
//   deadlines.remove(due, id);  // what has ended is not waited for
//
// Threads: `add` and `remove` from any, under any lock that `expire` does not hold while it adds.
// `expire` runs on that thread, one call at a time, with nothing locked. Cost: deadlines that come
// in order wake nobody: the thread sleeps until the earliest that it knew when it lay down, and
// looks again then. Only one that is due before that wakes it.
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
  /// Waits for a call of `expire` that is under way; after it there are none. Not from within one.
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
