#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x - floor(x / y) * y: the remainder with the sign of y.
TROUPE_DSL(Expr mod(Operand x, Operand y))
Expr mod(Operand x, Operand y) { return bind1("Mod", {x, y}); }
/// mod(x, y).
TROUPE_DSL(Expr operator%(Operand x, Operand y))
Expr operator%(Operand x, Operand y) { return bind1("Mod", {x, y}); }

TROUPE_OP(Mod) {
  op.doc("x - floor(x / y) * y: the remainder with the sign of y.");
  op.pointwise([](auto x, auto y) {
    using namespace reference_scalar;
    return mod(x, y);
  });
  op.gradient([](Gradient& g) {
    if (g.needs(0)) g.set(0, g.dy());
    if (g.needs(1)) g.set(1, -(g.dy() * floor_div(g.x(0), g.x(1))));
  });
}

}  // namespace troupe
