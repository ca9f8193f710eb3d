#pragma once

#include <cstdint>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe {

/// Returns the number of elements of a list in a graph under construction, if nodes alone tell it:
/// made empty, reserved or unstacked, then pushed to, popped or written, also in loops that count
/// by a constant from one constant to another. -1: it is not known.
std::int64_t known_length(const Graph& graph, Edge list);

}  // namespace troupe
