#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Self-normalising linear unit (Klambauer et al., 2017).
TROUPE_DSL(Expr selu(Operand x))
Expr selu(Operand x) { return bind1("Selu", {x}); }

TROUPE_OP(Selu) {
  op.doc("Self-normalising linear unit (Klambauer et al., 2017).");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return select(x > 0.0, 1.0507009873554805 * x, 1.7580993408473766 * expm1(x));
  });
  op.gradient([](Gradient& g) {
    g.set(0, where(g.x() > 0.0, g.dy() * 1.0507009873554805,
                   g.dy() * 1.7580993408473766 * exp(minimum(g.x(), 0.0))));
  });
}

}  // namespace troupe
