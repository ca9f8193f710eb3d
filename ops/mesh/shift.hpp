// Elements that move along a dimension: each device of a mesh sends its last rows to the next one.
//
//   const Expr before = mesh::shift(x, length, 1);        // position i gets what was at i - 1
//
// Errors: invalid_argument, naming the caller's line and the dimension.
#pragma once

#include <cstdint>
#include <source_location>

#include <troupe/ops/graph/expr.hpp>
#include <troupe/ops/mesh/mesh.hpp>

namespace troupe::mesh {

/// Position i along the dimension gets the element of position i - by; `by` may be negative.
/// `wrap`: elements that leave one end enter at the other; else zeros do.
Expr shift(const Expr& x, const Dim& along, std::int64_t by, bool wrap = false,
           std::source_location at = std::source_location::current());

}  // namespace troupe::mesh
