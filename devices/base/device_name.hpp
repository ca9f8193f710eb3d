// Names of devices: `cpu:0` on the node that is meant, `/node:worker1/cpu:0` in full.
#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// The prefix of a name in full; the node's name follows.
inline constexpr std::string_view kNodePrefix = "/node:";

/// Returns `worker1` for `/node:worker1/cpu:0`; empty if the name has no node.
std::string_view node_of(std::string_view device);
/// Returns `cpu:0` for `/node:worker1/cpu:0`, and for `/node:worker1` alone.
std::string_view short_name(std::string_view device);
/// Returns the name in full. A name without a node gets `node`; an empty `node` leaves it
/// unchanged.
std::string full_name(std::string_view device, std::string_view node);

}  // namespace troupe
