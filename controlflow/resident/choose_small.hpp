// The choice of the tensors in a loop that are small: their elements are registers of its scalar
// code. Pointwise operations, sums, tiny products and movements of them are steps without calls.
#pragma once

#include <cstdint>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe {

/// True if a tensor of this spec, which is no scalar, has 1 to `most` elements.
bool is_small(const ValueSpec& spec, std::int64_t most);
/// True if the node is steps where tensors of up to `most` elements are small.
bool is_small_step(const Graph& graph, const Node& node, std::int64_t most);
/// Returns the bound with which an estimate of a loop's iteration takes least; 0: no tensor is
/// small. A tensor that kernels use as well is copied for each of them, which may cost more than
/// steps save. `is_compiled`: steps are machine code.
std::int64_t most_small_elements(const Node& loop, bool is_compiled);

}  // namespace troupe
