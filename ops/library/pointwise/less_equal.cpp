#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// True where x is at most y.
TROUPE_DSL(Expr operator<=(Operand x, Operand y))
Expr operator<=(Operand x, Operand y) { return bind1("LessEqual", {x, y}); }

TROUPE_OP(LessEqual) {
  op.doc("Is x at most y?");
  op.pointwise([](auto x, auto y) { return x <= y; });
  op.not_differentiable();
}

}  // namespace troupe
