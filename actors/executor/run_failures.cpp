#include <troupe/actors/executor/run_failures.hpp>

#include <string>

#include <fmt/format.h>

#include <troupe/actors/plan/instances.hpp>

namespace troupe {

void RunFailures::fail_at(Run& run, std::int32_t source, const Status& status) {
  observer_.node_failed(source);
  std::string where = source < 0 ? mine_.device->name() : plan_.program.graph.describe(source);
  // Nodes of instances have one description on all devices.
  if (source >= 0 && is_of_instances(plan_, source)) where += " on " + mine_.name;
  if (plan_.is_shared())
    where = fmt::format("node '{}': {}", plan_.nodes[static_cast<std::size_t>(mine_.node)], where);
  run.fail(Status(status.code(), fmt::format("{}: {}", where, status.message())));
}

void RunFailures::fail_within(Run& run, const PlanNode& loop, const std::string& where,
                              const Status& status) {
  observer_.record_failure(run, loop.source);
  observer_.node_failed(loop.source);
  const std::string on =
      plan_.is_shared()
          ? fmt::format("node '{}': ", plan_.nodes[static_cast<std::size_t>(mine_.node)])
          : std::string();
  run.fail(Status(status.code(), fmt::format("{}{}: {}", on, where, status.message())));
}

Status RunFailures::in_loop(const IterationState& iteration, Status status) {
  if (!iteration.instance->parent) return status;
  return Status(status.code(), fmt::format("in {}: {}", tag_of(iteration), status.message()));
}

void RunFailures::fail(Run& run, const PlanNode* node, const Status& status) {
  if (node) observer_.record_failure(run, node->source);
  fail_at(run, node ? node->source : -1, status);
}

}  // namespace troupe
