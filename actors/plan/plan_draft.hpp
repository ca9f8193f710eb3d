// A plan as it is made: what the nodes of its program have become so far, and where. For those who
// make it (plan.cpp, plan_edges.cpp).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <troupe/actors/controlflow/frames.hpp>
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
  std::vector<std::int32_t> partition_of;  // each node
  std::optional<Frames> frames;            // refers to what is above
  std::vector<std::int32_t> local;  // a node's place: in its frame, or among enters, exits, loops
  std::vector<char> is_materialized;
  std::vector<std::vector<std::int32_t>> parts;  // partition, frame: the part
  std::vector<std::vector<Held>> held;           // of each node

  const Graph& graph() const { return plan.program.graph; }
  PartitionPlan& partition(std::int32_t q) { return plan.partitions[at(q)]; }
  FramePlan& frame_of(std::int32_t id) {
    return partition(partition_of[at(id)])
        .frames[at(part(partition_of[at(id)], frames->frame(id)))];
  }
  /// The part of a frame that is in a partition; with it come parts of the frames around it.
  std::int32_t part(std::int32_t q, std::int32_t frame);
  /// Is it a node of a frame, with tokens of its own?
  bool fires(std::int32_t id) const;
};

/// Who uses what, as targets in partitions; and where users are in others, cut edges. All nodes are
/// there.
void add_edges(PlanDraft& draft);

}  // namespace troupe
