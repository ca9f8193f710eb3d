#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// True where x is below y.
TROUPE_DSL(Expr operator<(Operand x, Operand y))
Expr operator<(Operand x, Operand y) { return bind1("Less", {x, y}); }

TROUPE_OP(Less) {
  op.doc("Is x below y?");
  op.pointwise([](auto x, auto y) { return x < y; });
  op.not_differentiable();
}

}  // namespace troupe
