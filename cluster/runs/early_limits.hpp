// Limits on the memory that one peer takes of this node before it is entitled to any.
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::detail {

/// Limits on messages buffered per peer for runs that have not begun on this node, and on waiting
/// requests of the peer for plans and variables, of which one is accepted whatever its size. A peer
/// that exceeds them is disconnected. A node keeps to the same limits itself, and sends a request
/// when those before it leave room: give all nodes of a cluster the same limits. A peer that leaves
/// more than `bytes` of answers unread gets no more until it has read them.
struct EarlyLimits {
  std::size_t messages = 1 << 16;
  std::uint64_t bytes = 1 << 30;
};

}  // namespace troupe::detail
