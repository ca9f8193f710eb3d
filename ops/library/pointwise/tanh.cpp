#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Hyperbolic tangent.
TROUPE_DSL(Expr tanh(Operand x))
Expr tanh(Operand x) { return bind1("Tanh", {x}); }

TROUPE_OP(Tanh) {
  op.doc("Hyperbolic tangent.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return tanh(x);
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() * (1.0 - square(g.y()))); });
}

}  // namespace troupe
