#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Hyperbolic cosine.
TROUPE_DSL(Expr cosh(Operand x))
Expr cosh(Operand x) { return bind1("Cosh", {x}); }

TROUPE_OP(Cosh) {
  op.doc("Hyperbolic cosine.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return cosh(x);
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() * sinh(g.x())); });
}

}  // namespace troupe
