#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Inverse hyperbolic cosine.
TROUPE_DSL(Expr acosh(Operand x))
Expr acosh(Operand x) { return bind1("Acosh", {x}); }

TROUPE_OP(Acosh) {
  op.doc("Inverse hyperbolic cosine.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return acosh(x);
  });
  // Differences keep the sign of an imaginary 0.
  op.gradient([](Gradient& g) { g.set(0, g.dy() * rsqrt(g.x() - 1.0) * rsqrt(g.x() - -1.0)); });
}

}  // namespace troupe
