#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// True where x is at least y.
TROUPE_DSL(Expr operator>=(Operand x, Operand y))
Expr operator>=(Operand x, Operand y) { return bind1("GreaterEqual", {x, y}); }

TROUPE_OP(GreaterEqual) {
  op.doc("Is x at least y?");
  op.pointwise([](auto x, auto y) { return x >= y; });
  op.not_differentiable();
}

}  // namespace troupe
