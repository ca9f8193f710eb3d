#include <troupe/functions.hpp>
#include <troupe/ops/gradient.hpp>
#include <troupe/ops/op.hpp>

namespace troupe {

/// x to the power of y.
TROUPE_DSL(Expr pow(Operand x, Operand y))
Expr pow(Operand x, Operand y) { return bind1("Pow", {x, y}); }

TROUPE_OP(Pow) {
  op.doc("x to the power of y.");
  op.pointwise([](auto x, auto y) {
    using namespace reference_scalar;
    return pow(x, y);
  });
  op.gradient([](Gradient& g) {
    // x^0 is 1 everywhere: its slope is 0 at x = 0 too, where x^(0 - 1) is infinite.
    if (g.needs(0)) g.set(0, g.dy() * g.x(1) * pow(g.x(0), where(g.x(1) == 0.0, 0.0, g.x(1) - 1.0)));
    Expr has_log = is_complex(g.y().dtype()) ? g.x(0) != 0.0 : g.x(0) > 0.0;
    if (g.needs(1)) g.set(1, g.dy() * g.y() * log(where(has_log, g.x(0), 1.0)));
  });
}

}  // namespace troupe
