// Counters of a partition that other threads may read.
//
// Threads: the partition's turn writes, any thread reads. The counters publish nothing.
#pragma once

#include <atomic>
#include <cstdint>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

/// Counts a loop over all runs; number 0 counts the nodes outside of all loops.
struct LoopCounters {
  std::atomic<std::uint64_t> instances{0}, iterations{0};
  // summed times that executions, and their iterations, were open; by the partition's clock
  std::atomic<std::uint64_t> time{0}, iterations_time{0};
  std::atomic<std::uint64_t> most_open{0};
  // iterations that could have opened but for the iteration window
  std::atomic<std::uint64_t> window_waits{0};
};
/// Returns the iterations open at once, on average over time; 0: no time has passed.
double achieved_parallelism(const LoopCounters& counters);

/// Counts the tokens of a cut edge, at one of its ends.
struct EdgeCount {
  std::atomic<std::uint64_t> tokens{0}, bytes{0};
};

/// Adds to a counter that has one writer.
inline void add(std::atomic<std::uint64_t>& counter, std::uint64_t n = 1) {
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

}  // namespace troupe
