#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Inverse hyperbolic tangent.
TROUPE_DSL(Expr atanh(Operand x))
Expr atanh(Operand x) { return bind1("Atanh", {x}); }

TROUPE_OP(Atanh) {
  op.doc("Inverse hyperbolic tangent.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return atanh(x);
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() / ((1.0 - g.x()) * (1.0 + g.x()))); });
}

}  // namespace troupe
