// LoopOverlap: how far the iterations of a loop over several devices overlap, as predicted: a
// pipeline whose stages are the devices' parts of an iteration.
//
//   for (const LoopOverlap& l : loop_overlaps(forecaster, graph, model, device)) l.bubble(100);
//
//   cpu:0  ▮0▮1▮2▮3
//   cpu:1     ▮0▮1▮2▮3          the bubble: the part of the devices' time in which they wait
//   cpu:2        ▮0▮1▮2▮3
//
// An iteration ends each `period_ns`: the longest of the busiest device's time, the path from a
// loop variable to its own next value (the recurrence), and an iteration's length by the iteration
// window. Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <troupe/actors/placement/forecast.hpp>

namespace troupe {

struct LoopOverlap {
  std::int32_t frame = 0;
  std::vector<std::pair<std::size_t, double>> busy_ns;  // an iteration's, by device; two or more
  double length_ns = 0;                                 // one iteration
  double period_ns = 0;
  // decides the period: `cpu:1`, `the variable of Merge 'x'`, `4 iterations at a time`
  std::string limit;
  /// The part of the devices' time in which they wait, in so many iterations.
  double bubble(double iterations) const;
};

/// `device`: by node, an index into the model's devices; negative: none. Loops on one device are
/// left out.
std::vector<LoopOverlap> loop_overlaps(const Forecaster& forecaster, const Graph& graph,
                                       const CostModel& model,
                                       const std::vector<std::int32_t>& device);

}  // namespace troupe
