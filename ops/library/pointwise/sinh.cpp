#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Hyperbolic sine.
TROUPE_DSL(Expr sinh(Operand x))
Expr sinh(Operand x) { return bind1("Sinh", {x}); }

TROUPE_OP(Sinh) {
  op.doc("Hyperbolic sine.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return sinh(x);
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() * cosh(g.x())); });
}

}  // namespace troupe
