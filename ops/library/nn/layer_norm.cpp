#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/row_norm.hpp>

namespace troupe {

/// x [..., channels] brought to mean 0 and variance 1 over the last axis, times `scale`, plus
/// `bias`, both [channels] or scalars.
TROUPE_DSL(Expr layer_norm(Operand x, Operand scale, Operand bias, double epsilon = 1e-5))
Expr layer_norm(Operand x, Operand scale, Operand bias, double epsilon) {
  return bind1("LayerNorm", {x, scale, bias}, Attrs{{"epsilon", epsilon}});
}

TROUPE_OP(LayerNorm) {
  op.doc(
      "Each row brought to mean 0 and variance 1, times scale, plus bias; also the rows' means and "
      "the reciprocals of their deviations.");
  define_row_norm<true>(op, "LayerNormGradient");
}

TROUPE_OP(LayerNormGradient) {
  op.doc(
      "The gradients of LayerNorm with respect to x, scale and bias, of x, scale, the moments that "
      "came out, and dy.");
  define_row_norm_gradient<true>(op);
}

}  // namespace troupe
