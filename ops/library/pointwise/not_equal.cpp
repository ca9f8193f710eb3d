#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// True where x and y differ. Strings too, of one shape or one of them a scalar.
TROUPE_DSL(Expr operator!=(Operand x, Operand y))
Expr operator!=(Operand x, Operand y) {
  if (x.is_expr() && x.expr().dtype() == DType::string) return logical_not(x == y);
  return bind1("NotEqual", {x, y});
}

TROUPE_OP(NotEqual) {
  op.doc("Do they differ, element by element?");
  op.pointwise([](auto x, auto y) { return x != y; });
  op.commutative();
  op.not_differentiable();
}

}  // namespace troupe
