// Shapes and kernels of ops along one axis.
#pragma once

#include <troupe/devices/device/axis_indexing.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe::detail {

/// A shape with one axis in the middle.
struct AroundAxis {
  std::int64_t outer = 1, extent = 1, inner = 1;
};
AroundAxis around_axis(const Shape& shape, std::int64_t axis);

/// Signature, inference and kernel of a running sum, product or linear recurrence.
void define_scan(OpBuilder& op, Scan what);
/// Each element where the next one along `axis` was, the first 0; back: where the one before was,
/// the last 0.
Expr shifted(const Expr& x, std::int64_t axis, bool back);

}  // namespace troupe::detail
