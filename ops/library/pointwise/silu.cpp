#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>
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
    // sigmoid(-x) is 1 - sigmoid(x), with all its digits.
    const Expr x = widened_half(g.x()), slope = sigmoid(x) * (1.0 + x * sigmoid(-x));
    g.set(0, g.dy() * cast(slope, g.x().dtype()));
  });
}

}  // namespace troupe
