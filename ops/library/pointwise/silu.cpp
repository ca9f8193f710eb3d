#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x * sigmoid(x), also called swish.
TROUPE_DSL(Expr silu(Operand x))
Expr silu(Operand x) { return bind1("Silu", {x}); }

TROUPE_OP(Silu) {
  op.doc("x * sigmoid(x), also called swish.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return x * sigmoid(x);
  });
  op.gradient([](Gradient& g) {
    g.set(0, g.dy() * sigmoid(g.x()) * (1.0 + g.x() * (1.0 - sigmoid(g.x()))));
  });
}

}  // namespace troupe
