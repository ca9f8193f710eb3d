#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Quotient; of integers, cut towards zero.
TROUPE_DSL(Expr operator/(Operand x, Operand y))
Expr operator/(Operand x, Operand y) { return bind1("Div", {x, y}); }

TROUPE_OP(Div) {
  op.doc("Quotient; of integers, cut towards zero.");
  op.pointwise([](auto x, auto y) { return x / y; });
  op.gradient([](Gradient& g) {
    if (g.needs(0)) g.set(0, g.dy() / g.x(1));
    if (g.needs(1)) g.set(1, -(g.dy() * g.y() / g.x(1)));
  });
}

}  // namespace troupe
