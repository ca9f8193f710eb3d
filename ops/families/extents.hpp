// Shapes whose extents may be known only at run time, for functions that take a `detail::Extents`.
//
//   Expr vector = extents_vector(c, shape);      // i64 [rank]
//   bind1("BroadcastTo", {x, vector}, extents_attrs(shape));
#pragma once

#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/composite.hpp>

namespace troupe {

/// An i32 or i64 scalar, as i64 of shape [1]; throws invalid_argument, naming `what`, for others.
Expr integer_vector(const Composite& c, const Operand& scalar, const std::string& what);
/// The extents, as an i64 vector in which kAny is kAny. Throws invalid_argument unless those that
/// are values are integers.
Expr extents_vector(const Composite& c, const detail::Extents& shape);
/// `shape`: the known extents; `open`: the axes where the user wrote kAny.
Attrs extents_attrs(const Composite& c, const detail::Extents& shape);
/// The extents that a run gave, checked against these attributes: kAny at the open axes alone.
Shape extents_given(const Attrs& attrs, const std::vector<std::int64_t>& extents);

/// `wanted`, in which the last open extent follows from the others, and those before it are x's own
/// at the same positions. Throws invalid_argument if it cannot be. `x` may have unknown extents;
/// then so has the result.
Shape reshaped(const Shape& wanted, const Shape& x);

}  // namespace troupe
