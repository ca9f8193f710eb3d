// Equality of nodes that yield the same bits, for passes that merge them.
#pragma once

#include <cstddef>

#include <troupe/ops/graph/graph.hpp>

namespace troupe::detail {

/// Hashes a node by operation, device, inputs and attributes.
std::size_t key_of(const Node& node);
/// Returns whether two nodes have the same operation, inputs, controls, device and attributes, to
/// the sign of zeros.
bool is_same(const Node& a, const Node& b);

}  // namespace troupe::detail
