// How many iterations the receivers of cut edges grant.
#pragma once

#include <cstdint>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

namespace detail {

struct Plan;

}  // namespace detail

/// Of a loop between two partitions, for all edges from one of them to the other: as many as may be
/// open there, or `ahead` where that is more and these edges are all the loop's own, none of a loop
/// within, and small: control edges, and tensors of no more than `kSmallToken` bytes. So tokens
/// that wait at a receiver take little memory, how far ahead their sender may be; and sender and
/// receiver, which come to the same from the same edges, tell each other nothing more.
void set_windows(Plan& plan, std::int32_t ahead);

inline constexpr std::uint64_t kSmallToken = 64;

}  // namespace troupe
