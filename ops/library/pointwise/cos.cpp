#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Cosine of x in radians.
TROUPE_DSL(Expr cos(Operand x))
Expr cos(Operand x) { return bind1("Cos", {x}); }

TROUPE_OP(Cos) {
  op.doc("Cosine of x in radians.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return cos(x);
  });
  op.gradient([](Gradient& g) { g.set(0, -(g.dy() * sin(g.x()))); });
}

}  // namespace troupe
