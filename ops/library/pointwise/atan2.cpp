#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

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
    // By the larger of the two, so that no square is infinite or lost. At (0, 0), where there is no
    // slope, 0.
    const Expr larger = stop_gradient(maximum(abs(g.x(0)), abs(g.x(1)))),
               is_nothing = larger == 0.0;
    const Expr by = where(logical_or(is_nothing, is_inf(larger)), ones_like(larger), larger),
               a = g.x(0) / by, b = g.x(1) / by;
    const Expr share = g.dy() / by / where(is_nothing, ones_like(larger), square(a) + square(b));
    if (g.needs(0)) g.set(0, share * b);
    if (g.needs(1)) g.set(1, -(share * a));
  });
}

}  // namespace troupe
