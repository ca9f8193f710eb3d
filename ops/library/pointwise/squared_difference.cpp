#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// (x - y)^2.
TROUPE_DSL(Expr squared_difference(Operand x, Operand y))
Expr squared_difference(Operand x, Operand y) { return bind1("SquaredDifference", {x, y}); }

TROUPE_OP(SquaredDifference) {
  op.doc("(x - y)^2.");
  op.pointwise([](auto x, auto y) {
    using namespace reference_scalar;
    return square(x - y);
  });
  op.commutative();
  op.gradient([](Gradient& g) {
    if (g.needs(0)) g.set(0, g.dy() * (2.0 * (g.x(0) - g.x(1))));
    if (g.needs(1)) g.set(1, g.dy() * (2.0 * (g.x(1) - g.x(0))));
  });
}

}  // namespace troupe
