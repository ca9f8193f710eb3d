// What pooling ops share: attributes, checks and the kernel over the device's primitive.
#pragma once

#include <troupe/devices/device/window.hpp>
#include <troupe/ops/families/window.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe::detail {

/// Attributes of pooling: `size`, the window, and how it moves.
void pooling_attrs(OpBuilder& op);
Attrs attrs_of_pooling(std::vector<std::int64_t> size, const WindowOptions& window);
/// The shape of what `x` [batch, space..., channels] is pooled to.
Shape pooled_shape(const Shape& x, const Attrs& attrs);
/// Signature, inference and kernel of a pooling op. What is pooled is input 0; of mean_gradient,
/// where it is only a shape, input 1.
void define_pooling(OpBuilder& op, Pool what);

}  // namespace troupe::detail
