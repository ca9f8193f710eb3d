#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Minus x.
TROUPE_DSL(Expr operator-(Operand x))
Expr operator-(Operand x) { return bind1("Neg", {x}); }

TROUPE_OP(Neg) {
  op.doc("Minus x.");
  op.pointwise([](auto x) { return -x; });
  op.gradient([](Gradient& g) { g.set(0, -g.dy()); });
}

}  // namespace troupe
