#include <troupe/actors/engine/compiled_plan.hpp>

#include <troupe/actors/executor/loop_report.hpp>

namespace troupe::detail {

std::vector<LoopReport> CompiledPlan::loops_here() const {
  std::vector<const Partition*> partitions;
  for (const auto& actor : troupe.partitions)
    if (actor) partitions.push_back(&actor->partition());
  return report_loops(*troupe.plan, partitions);
}

std::vector<LoopReport> CompiledPlan::loops() const {
  std::vector<LoopReport> all = loops_here();
  if (troupe.remote)
    for (LoopReport& r : troupe.remote->loops()) all.push_back(std::move(r));
  return all;
}

std::vector<NodeCost> CompiledPlan::costs_here() const {
  std::vector<NodeCost> found;
  for (const auto& actor : troupe.partitions) {
    if (!actor) continue;
    const Partition& partition = actor->partition();
    for (const FramePlan& f : partition.plan().frames)
      for (const PlanNode& n : f.nodes)
        if (const std::int64_t ns = partition.kernels().cost_ns(n.index); ns > 0)
          found.push_back({troupe.plan->number_of(n.source), static_cast<double>(ns)});
  }
  return found;
}

}  // namespace troupe::detail
