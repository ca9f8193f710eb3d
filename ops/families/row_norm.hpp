// Shapes, kernels, and gradients of any order of LayerNorm and RmsNorm.
#pragma once

#include <troupe/ops/graph/op.hpp>

namespace troupe::detail {

/// x [..., channels], scale and, centered, bias, [channels] or scalars, give y; then, for the
/// gradient, the rows' mean, if centered, and the reciprocal root of their variance or mean square,
/// f32 or wider. The gradient is the op `gradient`.
template <bool centered>
void define_row_norm(OpBuilder& op, const char* gradient);
/// x, scale, mean if centered, rstd and dy give dx and, [channels], dscale and, if centered, dbias.
/// Each input counts as independent.
template <bool centered>
void define_row_norm_gradient(OpBuilder& op);

}  // namespace troupe::detail
