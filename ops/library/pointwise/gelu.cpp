#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Gaussian error linear unit (Hendrycks and Gimpel, 2016), exact.
TROUPE_DSL(Expr gelu(Operand x))
Expr gelu(Operand x) { return bind1("Gelu", {x}); }

TROUPE_OP(Gelu) {
  op.doc("Gaussian error linear unit (Hendrycks and Gimpel, 2016), exact.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return gelu(x);
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() * bind1("GeluSlope", {g.x()})); });
}

}  // namespace troupe
