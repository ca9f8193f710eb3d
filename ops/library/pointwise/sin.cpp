#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Sine of x in radians.
TROUPE_DSL(Expr sin(Operand x))
Expr sin(Operand x) { return bind1("Sin", {x}); }

TROUPE_OP(Sin) {
  op.doc("Sine of x in radians.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return sin(x);
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() * cos(g.x())); });
}

}  // namespace troupe
