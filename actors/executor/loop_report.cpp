#include <troupe/actors/executor/loop_report.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/actors/executor/partition.hpp>
#include <troupe/controlflow/resident/resident_loop.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe {
namespace {

// Returns the measured time of each node of the program, in µs.
std::vector<double> costs_of(const Plan& plan, const std::vector<const Partition*>& partitions) {
  std::vector<double> cost(at(plan.program.graph.size()), 0.0);
  for (const Partition* p : partitions)
    for (const FramePlan& f : p->plan().frames)
      for (const PlanNode& n : f.nodes)
        cost[at(n.source)] = 1e-3 * static_cast<double>(p->kernels().cost_ns(n.index));
  return cost;
}

// Returns the longest path, in µs, from a loop's Merge to the input of its NextIteration, or a
// negative number if there is no path. Inputs have smaller ids; the edge that closes the loop is
// not among the inputs. Returns 0 if the input was computed before the Merge.
double recurrence(const Graph& g, const std::vector<double>& cost, std::int32_t merge,
                  std::int32_t last) {
  if (last < merge) return 0;
  std::vector<double> way(at(last - merge + 1), -1.0);
  way[0] = 0;
  for (std::int32_t id = merge + 1; id <= last; ++id) {
    const Node& n = g.node(id);
    double longest = -1;
    for (Edge e : n.inputs)
      if (e.node >= merge) longest = std::max(longest, way[at(e.node - merge)]);
    for (std::int32_t c : n.controls)
      if (c >= merge) longest = std::max(longest, way[at(c - merge)]);
    if (longest >= 0) way[at(id - merge)] = longest + cost[at(id)];
  }
  return way[at(last - merge)];
}

// A loop that stays whole has one iteration open. The cost of its node is that of an execution that
// has ended.
LoopReport report_resident(const PlanNode& node, const PartitionPlan& plan,
                           const std::vector<double>& cost) {
  LoopReport r;
  r.loop = node.resident->name();
  r.device = plan.name;
  r.executions = node.resident->executions();
  r.iterations = node.resident->iterations();
  r.most_parallel = r.executions > 0;
  r.achieved_parallelism = r.executions > 0 ? 1 : 0;
  if (const std::uint64_t ended = node.resident->ended_executions(); ended > 0)
    r.iteration_us =
        cost[at(node.source)] * static_cast<double>(ended) /
        static_cast<double>(std::max<std::uint64_t>(1, node.resident->ended_iterations()));
  return r;
}

}  // namespace

namespace detail {

std::vector<LoopReport> report_loops(const Plan& plan,
                                     const std::vector<const Partition*>& partitions) {
  const Graph& g = plan.program.graph;
  const std::vector<double> cost = costs_of(plan, partitions);
  std::vector<LoopReport> reports;
  for (const Partition* p : partitions) {
    for (const FramePlan& frame : p->plan().frames)
      for (const PlanNode& n : frame.nodes)
        if (n.resident) reports.push_back(report_resident(n, p->plan(), cost));
    for (std::size_t f = 1; f < p->plan().frames.size(); ++f) {
      const FramePlan& frame = p->plan().frames[f];
      if (frame.function) continue;
      const LoopCounters& c = p->observer().loop_counters()[f];
      LoopReport r;
      r.loop = frame.name;
      r.device = p->plan().name;
      r.executions = c.instances.load(std::memory_order_relaxed);
      r.iterations = c.iterations.load(std::memory_order_relaxed);
      r.parallel_iterations = frame.window;
      r.most_parallel = c.most_open.load(std::memory_order_relaxed);
      r.held_tokens = p->observer().held_tokens();
      r.held_by_bytes = p->observer().held_by_bytes();
      r.most_bytes_on_way = p->observer().most_on_way();
      const auto iterations = static_cast<double>(std::max<std::uint64_t>(1, r.iterations));
      r.achieved_parallelism = achieved_parallelism(c);
      r.limited_by_window =
          static_cast<double>(c.window_waits.load(std::memory_order_relaxed)) / iterations;
      for (const PlanNode& n : frame.nodes) r.iteration_us += cost[at(n.source)];
      for (const PartitionPlan::Loop& loop : p->plan().loops) {
        if (loop.frame != static_cast<std::int32_t>(f)) continue;
        const Node& next = g.node(loop.source);
        const double us = recurrence(g, cost, next.inputs[1].node, next.inputs[0].node);
        if (us < r.recurrence_us || us <= 0) continue;
        r.recurrence_us = us;
        r.limiting_dependence = g.describe(next.inputs[0].node);
      }
      reports.push_back(std::move(r));
    }
  }
  return reports;
}

}  // namespace detail

std::string LoopReport::text() const {
  std::string out = fmt::format(
      "loop '{}' on {}: {} executions, {} iterations, {:.2f} open side by side (at most {}, "
      "allowed {}), {:.0f} % waited for the limit; "
      "{:.1f} us of kernels an iteration",
      loop, device, executions, iterations, achieved_parallelism, most_parallel,
      parallel_iterations, 100 * limited_by_window, iteration_us);
  if (!limiting_dependence.empty())
    out += fmt::format(", {:.1f} of them one after the other through {}", recurrence_us,
                       limiting_dependence);
  return out;
}

}  // namespace troupe
