// Attributes, checks and the kernel of pooling ops, over the device's primitive.
#pragma once

#include <troupe/devices/device/window.hpp>
#include <troupe/ops/families/window.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe::detail {

/// Attributes of pooling: `size`, the window, and how it moves.
void pooling_attrs(OpBuilder& op);
Attrs attrs_of_pooling(std::vector<std::int64_t> size, const WindowOptions& window);
/// Returns the shape to which `x` [batch, space..., channels] is pooled.
Shape pooled_shape(const Shape& x, const Attrs& attrs);
/// Sets signature, inference and kernel of a pooling op. It pools input 0; mean_gradient, which
/// needs only the pooled tensor's shape, has it as input 1.
void define_pooling(OpBuilder& op, Pool what);

}  // namespace troupe::detail
