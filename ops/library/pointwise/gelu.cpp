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
    return 0.5 * x * (1.0 + erf(x * 0.7071067811865476));
  });
  op.gradient([](Gradient& g) {
    g.set(0, g.dy() * (0.5 * (1.0 + erf(g.x() * 0.7071067811865476)) +
                       g.x() * 0.3989422804014327 * exp(square(g.x()) * -0.5)));
  });
}

}  // namespace troupe
