// Sets how many iterations the receivers of cut edges grant.
#pragma once

#include <cstdint>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

namespace detail {

struct Plan;

}  // namespace detail

/// Sets one iteration window for all edges of a loop from one partition to another. It is the
/// number of iterations that may be open, or `ahead` if that is more and all these edges are small
/// and none is of a loop within. Control edges and tensors of at most `kSmallToken` bytes are
/// small. So tokens that wait at a receiver take little memory. Sender and receiver compute equal
/// iteration windows from equal edges, and exchange no message about them.
void set_cut_edge_credit(Plan& plan, std::int32_t ahead);

inline constexpr std::uint64_t kSmallToken = 64;

}  // namespace troupe
