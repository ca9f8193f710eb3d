#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// log(1 + exp(x)), without overflow.
TROUPE_DSL(Expr softplus(Operand x))
Expr softplus(Operand x) { return bind1("Softplus", {x}); }

TROUPE_OP(Softplus) {
  op.doc("log(1 + exp(x)), without overflow.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return max(x, 0.0) + log1p(exp(-abs(x)));
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() * sigmoid(g.x())); });
}

}  // namespace troupe
