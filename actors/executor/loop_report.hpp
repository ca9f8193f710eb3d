// What loops did: how far their iterations ran side by side, and what kept them from more.
//
//   for (const LoopReport& r : function.loops()) std::puts(r.text().c_str());
//
// Achieved parallelism: the time that iterations were open, summed, over the time that executions
// of the loop were open, summed. So it is the iterations open at once, on average over time,
// between 1 and the window; by the engine's clock, and 0 where none of it has passed. An iteration
// is open from when its predicate allows it until all of it, and of those before it, is done. A
// loop over several devices is told device by device. The same number is in `troupe inspect`, on
// the web page and in reports. Measured up to the last iteration that opened or ended; who asks a
// partition (LoopSnapshot) has it up to then.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

namespace detail {

class Partition;
struct Plan;

}  // namespace detail

/// A loop, or the part of it that is on one device, over all runs of a function so far.
struct LoopReport {
  std::string loop;
  std::string device;
  std::uint64_t executions = 0;  // times it was entered
  std::uint64_t iterations = 0;  // besides the first of each execution
  int parallel_iterations = 1;   // the limit it was given
  // iterations open at once, on average over the time it was open: see above
  double achieved_parallelism = 0;
  std::uint64_t most_parallel = 0;
  double limited_by_window = 0;  // the part of iterations that waited for the limit
  // tokens from this device that waited for a slower one, of all loops
  std::uint64_t held_tokens = 0;
  std::uint64_t held_by_bytes = 0;  // of those: that waited only because of EdgeOptions::bytes
  // of large tokens of an edge from this device, not known to be consumed
  std::uint64_t most_bytes_on_way = 0;
  double iteration_us = 0;  // what the kernels of one iteration take, as measured
  /// The longest way from a loop variable to its own next value: iterations cannot follow each
  /// other faster.
  double recurrence_us = 0;
  std::string limiting_dependence;  // the node that makes that next value
  std::string text() const;
};

namespace detail {

std::vector<LoopReport> report_loops(const Plan& plan,
                                     const std::vector<const Partition*>& partitions);

}  // namespace detail

}  // namespace troupe
