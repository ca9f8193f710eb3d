// Adds the edges of calls to functions whose nodes are in several partitions.
#pragma once

#include <cstdint>
#include <vector>

#include <troupe/actors/frames/frames.hpp>
#include <troupe/actors/plan/plan.hpp>

namespace troupe {

/// Adds the edges `begins`, `ended` and `over` to a plan that has all other edges. A function in
/// several partitions is called in its home, where placement has put its Arguments, Returns and
/// Calls. The home sends `begins` to the other partitions for each call; they send `ended` when
/// their parts have ended. A partition that calls from outside of functions sends `over` to all
/// partitions of functions after its last call. `partition`: by node; `parts`: by partition and
/// frame, -1 for none.
void add_call_edges(Plan& plan, const Frames& frames, const std::vector<std::int32_t>& partition,
                    const std::vector<std::vector<std::int32_t>>& parts);

}  // namespace troupe
