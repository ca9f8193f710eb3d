#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Tangent of x in radians.
TROUPE_DSL(Expr tan(Operand x))
Expr tan(Operand x) { return bind1("Tan", {x}); }

TROUPE_OP(Tan) {
  op.doc("Tangent of x in radians.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return tan(x);
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() * (square(g.y()) + 1.0)); });
}

}  // namespace troupe
