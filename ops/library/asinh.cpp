#include <troupe/functions.hpp>
#include <troupe/ops/gradient.hpp>
#include <troupe/ops/op.hpp>

namespace troupe {

/// Inverse hyperbolic sine.
TROUPE_DSL(Expr asinh(Operand x))
Expr asinh(Operand x) { return bind1("Asinh", {x}); }

TROUPE_OP(Asinh) {
  op.doc("Inverse hyperbolic sine.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return asinh(x);
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() * rsqrt(square(g.x()) + 1.0)); });
}

}  // namespace troupe
