#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Inverse tangent, in radians.
TROUPE_DSL(Expr atan(Operand x))
Expr atan(Operand x) { return bind1("Atan", {x}); }

TROUPE_OP(Atan) {
  op.doc("Inverse tangent, in radians.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return atan(x);
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() / (square(g.x()) + 1.0)); });
}

}  // namespace troupe
