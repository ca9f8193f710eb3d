#include <troupe/functions.hpp>
#include <troupe/ops/gradient.hpp>
#include <troupe/ops/op.hpp>

namespace troupe {

/// The angle of the point (y, x), in radians.
TROUPE_DSL(Expr atan2(Operand x, Operand y))
Expr atan2(Operand x, Operand y) { return bind1("Atan2", {x, y}); }

TROUPE_OP(Atan2) {
  op.doc("The angle of the point (y, x), in radians.");
  op.pointwise([](auto x, auto y) {
    using namespace reference_scalar;
    return atan2(x, y);
  });
  op.gradient([](Gradient& g) {
    if (g.needs(0)) g.set(0, g.dy() * g.x(1) / (square(g.x(0)) + square(g.x(1))));
    if (g.needs(1)) g.set(1, -(g.dy() * g.x(0) / (square(g.x(0)) + square(g.x(1)))));
  });
}

}  // namespace troupe
