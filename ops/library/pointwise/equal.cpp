#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// True where x and y are equal. Strings too, of one shape or one of them a scalar.
TROUPE_DSL(Expr operator==(Operand x, Operand y))
Expr operator==(Operand x, Operand y) {
  const bool is_text = x.is_expr() && x.expr().dtype() == DType::string;
  return bind1(is_text ? "StringEqual" : "Equal", {x, y});
}

TROUPE_OP(Equal) {
  op.doc("Are they equal, element by element?");
  op.pointwise([](auto x, auto y) { return x == y; });
  op.commutative();
  op.not_differentiable();
}

}  // namespace troupe
