// Names of devices: `cpu:0` on the current node, `/node:worker1/cpu:0` in full. This is the only
// place that parses such names; devices/device/registry.hpp has the kinds that exist.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// The prefix of a name in full; the node's name follows.
inline constexpr std::string_view kNodePrefix = "/node:";
/// The device that every node has: used if a name gives a node alone.
inline constexpr std::string_view kHostDevice = "cpu:0";

/// Returns `worker1` for `/node:worker1/cpu:0`; empty if the name has no node.
std::string_view node_of(std::string_view device);
/// Returns `cpu:0` for `/node:worker1/cpu:0`, and for `/node:worker1` alone.
std::string_view short_name(std::string_view device);
/// Returns the name in full. A name without a node gets `node`; an empty `node` leaves it
/// unchanged.
std::string full_name(std::string_view device, std::string_view node);

/// Returns `cpu` for `/node:worker1/cpu:0` and `cpu:*`; the whole short name if it has no ':'.
std::string_view kind_of(std::string_view device);
/// True for `cpu:0` and `/node:worker1/cpu:*`: a device that computes in the host's memory.
bool is_on_host(std::string_view device);
/// Returns 3 for `cpu:3`. Returns nothing unless the kind is lower-case letters and the index at
/// most nine digits without leading zeros.
std::optional<std::int32_t> index_of(std::string_view device);
/// True for `cpu:*`, which stands for every device of its kind.
bool is_any_index(std::string_view device);
/// True if the text has the form of a device's short name or of `cpu:*`. A constraint is checked
/// for this form alone, because another node may have kinds that this one lacks.
bool looks_like_device(std::string_view text);

}  // namespace troupe
