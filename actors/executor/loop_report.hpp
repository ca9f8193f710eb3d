// LoopReport: how many iterations of a loop were open at once, and what limited their number.
//
//   for (const LoopReport& r : function.loops()) std::puts(r.text().c_str());
//
// Achieved parallelism is the summed time that iterations were open, divided by the summed time
// that executions of the loop were open. So it is the time average of the iterations open at once,
// between 1 and the iteration window. Times are by the engine's clock; the number is 0 if no time
// has passed. An iteration is open from when its predicate allows it until all of it, and of the
// iterations before it, is done. A loop over several devices has one report for each device.
// `troupe inspect` and the web page show the same number. Here it is measured up to the last
// iteration that opened or ended; in a `LoopSnapshot`, up to the moment of the snapshot.
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
  // iterations open at once, on average over the time that the loop was open
  double achieved_parallelism = 0;
  std::uint64_t most_parallel = 0;
  double limited_by_window = 0;  // fraction of the iterations that waited for the limit
  // tokens of all loops that waited on this device for a slower one
  std::uint64_t held_tokens = 0;
  std::uint64_t held_by_bytes = 0;  // tokens that waited only because of EdgeOptions::bytes
  // peak bytes of large tokens in flight on one edge from this device
  std::uint64_t most_bytes_on_way = 0;
  double iteration_us = 0;  // measured time of the kernels of one iteration
  /// Time of the longest path from a loop variable to its own next value: a lower bound on the time
  /// between iterations.
  double recurrence_us = 0;
  std::string limiting_dependence;  // the node that computes the next value on that path
  std::string text() const;
};

namespace detail {

std::vector<LoopReport> report_loops(const Plan& plan,
                                     const std::vector<const Partition*>& partitions);

}  // namespace detail

}  // namespace troupe
