// Times pieces of a queue's work by pairs of CUDA events, on the host's steady clock.
//
//   WorkTimer timer(queue);
//   const cudaEvent_t begin = timer.begin();          // in the queue's order
//   ... enqueue ...
//   timer.end(begin, "matmul", false, label);
//   for (const TimedWork& w : timer.take()) ...       // work that has ended
//
// The device's clock is compared with the host's when the timer is made: an event on an idle stream
// passes between two looks at the host's clock. CUDA gives differences as float milliseconds, so
// the event that others are compared with is replaced when they are half a second away.
//
// Threads: one at a time. The timer bounds itself: beyond kMost pieces that have not ended no work
// is timed.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include <cuda_runtime_api.h>

#include <troupe/devices/cuda/runtime/queue.hpp>
#include <troupe/devices/device/activity.hpp>

namespace troupe::cuda {

class WorkTimer {
 public:
  static constexpr std::size_t kMost = 1 << 14;
  // ns: there a float counts milliseconds in steps of 30 ns
  static constexpr double kFar = 5e8;

  /// Takes some microseconds: the calling thread waits for the idle stream. `far`: in ns, how far
  /// an event is from the one that it is compared with before it replaces that one.
  explicit WorkTimer(std::shared_ptr<Queue> queue, double far = kFar);
  ~WorkTimer();
  WorkTimer(const WorkTimer&) = delete;
  WorkTimer& operator=(const WorkTimer&) = delete;

  /// Null if no more work can be timed now.
  cudaEvent_t begin();
  /// Ends the piece that `begin` began; null is allowed.
  void end(cudaEvent_t begin, const char* name, bool is_copy, const WorkLabel& label,
           std::int64_t launches = 1) noexcept;
  /// The piece enqueued nothing.
  void drop(cudaEvent_t begin) noexcept;
  std::vector<TimedWork> take();
  std::int64_t clock_error_ns() const { return error_ns_; }

 private:
  struct Piece {
    cudaEvent_t begin, end;
    TimedWork work;
  };
  cudaEvent_t event();
  void compare_clocks();
  double ns_between(cudaEvent_t from, cudaEvent_t to);

  const std::shared_ptr<Queue> queue_;
  const double far_;
  std::vector<cudaEvent_t> spare_;
  std::deque<Piece> pieces_;
  cudaEvent_t base_ = nullptr;  // passed at base_ns_
  double base_ns_ = 0;          // on the steady clock
  std::int64_t error_ns_ = 0;
};

}  // namespace troupe::cuda
