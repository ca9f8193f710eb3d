// Counts of runs that have ended: by how long they took, as a histogram of Prometheus, and by the
// status that ended them.
//
//   RunDurationCounter durations;                   // of a plan
//   durations.add(std::chrono::milliseconds(3));    // a run has ended
//   RunEndingCounter endings;                       // of an engine
//   endings.add(Code::unavailable);
//
// Threads: any. A count publishes nothing, so all accesses are relaxed: a reader may see a run in
// its bucket and not yet in the total.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include <troupe/devices/base/error.hpp>

namespace troupe::detail {

struct RunDurations {
  /// Upper bounds of the buckets, in seconds; a run of exactly that long belongs below the bound.
  static constexpr std::array<double, 14> kBounds = {
      0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 600, 3600};
  std::array<std::uint64_t, kBounds.size() + 1> runs{};  // the last: longer than all bounds
  std::int64_t total_ns = 0;                             // the sum over all runs

  static std::size_t bucket_of(std::chrono::nanoseconds took) {
    const double seconds = std::chrono::duration<double>(took).count();
    return static_cast<std::size_t>(std::lower_bound(kBounds.begin(), kBounds.end(), seconds) -
                                    kBounds.begin());
  }
};

/// Runs by the code of their status.
using RunEndings = std::array<std::uint64_t, static_cast<std::size_t>(Code::internal) + 1>;

class RunDurationCounter {
 public:
  void add(std::chrono::nanoseconds took) {
    runs_[RunDurations::bucket_of(took)].fetch_add(1, std::memory_order_relaxed);
    total_ns_.fetch_add(took.count(), std::memory_order_relaxed);
  }
  RunDurations durations() const {
    RunDurations all;
    for (std::size_t i = 0; i < runs_.size(); ++i)
      all.runs[i] = runs_[i].load(std::memory_order_relaxed);
    all.total_ns = total_ns_.load(std::memory_order_relaxed);
    return all;
  }

 private:
  std::array<std::atomic<std::uint64_t>, RunDurations::kBounds.size() + 1> runs_{};
  std::atomic<std::int64_t> total_ns_{0};
};

class RunEndingCounter {
 public:
  void add(Code code) {
    runs_[static_cast<std::size_t>(code)].fetch_add(1, std::memory_order_relaxed);
  }
  RunEndings endings() const {
    RunEndings all{};
    for (std::size_t i = 0; i < runs_.size(); ++i)
      all[i] = runs_[i].load(std::memory_order_relaxed);
    return all;
  }

 private:
  std::array<std::atomic<std::uint64_t>, std::tuple_size_v<RunEndings>> runs_{};
};

}  // namespace troupe::detail
