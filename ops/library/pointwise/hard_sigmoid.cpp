#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x / 6 + 1/2 cut to [0, 1].
TROUPE_DSL(Expr hard_sigmoid(Operand x))
Expr hard_sigmoid(Operand x) { return bind1("HardSigmoid", {x}); }

TROUPE_OP(HardSigmoid) {
  op.doc("x / 6 + 1/2 cut to [0, 1].");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return min(max(x / 6.0 + 0.5, 0.0), 1.0);
  });
  op.gradient([](Gradient& g) {
    g.set(0, where(logical_and(g.x() > -3.0, g.x() < 3.0), g.dy() / 6.0, 0.0));
  });
}

}  // namespace troupe
