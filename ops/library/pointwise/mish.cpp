#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x * tanh(softplus(x)) (Misra, 2019).
TROUPE_DSL(Expr mish(Operand x))
Expr mish(Operand x) { return bind1("Mish", {x}); }

TROUPE_OP(Mish) {
  op.doc("x * tanh(softplus(x)) (Misra, 2019).");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return x * tanh(max(x, 0.0) + log1p(exp(-abs(x))));
  });
  op.gradient([](Gradient& g) {
    g.set(0, g.dy() * (tanh(softplus(g.x())) +
                       g.x() * (1.0 - square(tanh(softplus(g.x())))) * sigmoid(g.x())));
  });
}

}  // namespace troupe
