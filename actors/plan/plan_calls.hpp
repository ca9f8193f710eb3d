// Functions whose nodes are in several partitions: the edges by which these tell each other of
// calls.
#pragma once

#include <cstdint>
#include <vector>

#include <troupe/actors/controlflow/frames.hpp>
#include <troupe/actors/plan/plan.hpp>

namespace troupe {

/// Such a function is called in one partition, where placement has put its Arguments, Returns and
/// Calls. That tells the others of each call, and they it when their parts have ended. Who calls
/// from outside of functions tells all of these when it will not again. `partition`: of each node;
/// `parts`: by partition and frame, -1 for none. All other edges are there.
void add_call_edges(Plan& plan, const Frames& frames, const std::vector<std::int32_t>& partition,
                    const std::vector<std::vector<std::int32_t>>& parts);

}  // namespace troupe
