#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/row_norm.hpp>

namespace troupe {

/// x [..., channels] over the root of its mean square over the last axis, times `scale`, [channels]
/// or a scalar.
TROUPE_DSL(Expr rms_norm(Operand x, Operand scale, double epsilon = 1e-6))
Expr rms_norm(Operand x, Operand scale, double epsilon) {
  return bind1("RmsNorm", {x, scale}, Attrs{{"epsilon", epsilon}});
}

TROUPE_OP(RmsNorm) {
  op.doc(
      "Each row over the root of its mean square, times scale; also the reciprocals of those "
      "roots.");
  define_row_norm<false>(op, "RmsNormGradient");
}

TROUPE_OP(RmsNormGradient) {
  op.doc(
      "The gradients of RmsNorm with respect to x and scale, of x, scale, the reciprocal roots "
      "that came out, and dy.");
  define_row_norm_gradient<false>(op);
}

}  // namespace troupe
