#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// True where x is above y.
TROUPE_DSL(Expr operator>(Operand x, Operand y))
Expr operator>(Operand x, Operand y) { return bind1("Greater", {x, y}); }

TROUPE_OP(Greater) {
  op.doc("Is x above y?");
  op.pointwise([](auto x, auto y) { return x > y; });
  op.not_differentiable();
}

}  // namespace troupe
