// All-reduces of an SPMD program that do not depend on each other are joined: one sum of all
// gradients crosses the devices in place of one a gradient.
//
//   spmd = join_all_reduces(std::move(spmd));
#pragma once

#include <troupe/ops/mesh/spmd.hpp>

namespace troupe::mesh::detail {

/// The most bytes of one joined all-reduce: a larger one would begin later without being cheaper.
inline constexpr std::int64_t kJoinedBytes = std::int64_t{32} << 20;

/// Joins sums of one dtype along one mesh axis that are as many all-reduces deep. Values keep their
/// bits: each element is combined in the same order. Effects keep their order.
SpmdProgram join_all_reduces(SpmdProgram spmd);

}  // namespace troupe::mesh::detail
