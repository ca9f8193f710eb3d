// Shapes and arguments of the ops that take or put slices at coordinates.
#pragma once

#include <troupe/devices/device/axis_indexing.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe::detail {

/// A tensor [batch..., extents..., rest...] and coordinates [batch..., n..., depth] in it.
struct Coordinates {
  Shape taken;  // [batch..., n..., rest...]; unknown if the ranks or the depth are
  std::int64_t outer = 1, n = 1, inner = 1;  // valid for shapes known in full
  std::int64_t depth = 0;
  Shape extents;

  AlongArgs args(Along what, ConstView x, ConstView indices, View out, Put how = Put::update) const;
};

/// Throws invalid_argument if the two do not go together.
Coordinates coordinates_of(const Shape& params, const Shape& indices, std::int64_t batch_axes);

}  // namespace troupe::detail
