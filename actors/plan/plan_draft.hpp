// PlanDraft: the state of a plan while plan.cpp and plan_edges.cpp make it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <troupe/actors/frames/frames.hpp>
#include <troupe/actors/plan/plan.hpp>
#include <troupe/actors/plan/plan_part.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe {

struct PlanDraft {
  Plan plan;
  std::shared_ptr<const PlanPart> plan_part;  // null: the program is whole
  // node, output: partitions of other nodes
  std::map<std::pair<std::int32_t, std::int32_t>, std::set<std::int32_t>> outs;
  std::map<std::int32_t, std::int32_t> fed;
  std::vector<std::int32_t> partition_of;  // by node
  std::optional<Frames> frames;            // refers to the members above
  std::vector<std::int32_t> local;  // by node: index in its frame, or among enters, exits, loops
  std::vector<char> is_materialized;
  std::vector<std::vector<std::int32_t>> parts;  // by partition and frame: index of the part
  std::vector<std::vector<Held>> held;           // by node: its bound inputs

  const Graph& graph() const { return plan.program.graph; }
  PartitionPlan& partition(std::int32_t q) { return plan.partitions[at(q)]; }
  FramePlan& frame_of(std::int32_t id) {
    return partition(partition_of[at(id)])
        .frames[at(part(partition_of[at(id)], frames->frame(id)))];
  }
  /// Returns the part of a frame in a partition. Makes it, and parts of the frames around it, if
  /// they are missing.
  std::int32_t part(std::int32_t q, std::int32_t frame);
  /// True if the node is in a frame and has tokens of its own.
  bool fires(std::int32_t id) const;
};

/// Adds the targets of all outputs, and a cut edge for each output that another partition uses. All
/// nodes have been added before.
void add_edges(PlanDraft& draft);

}  // namespace troupe
