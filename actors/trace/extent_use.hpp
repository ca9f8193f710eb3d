// Finds host code that computes with an extent: `sum(x) / double(x.shape()[0])` in a function.
//
// A trace in which extents are unknown has kAny in their place, so a number that host code makes of
// one is wrong there. It is a constant of the trace that a trace for known extents does
// not have at the same line.
#pragma once

#include <string>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe::detail {

/// Returns the line of a constant that `relaxed`, the trace for unknown extents, has and `exact`,
/// one for known extents, lacks at that line; empty: there is none. Lines without a constant in
/// `exact` do not count: there an operation computes with the extent when it runs.
std::string line_with_extent(const Graph& exact, const Graph& relaxed);

}  // namespace troupe::detail
