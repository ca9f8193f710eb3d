#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x * hard_sigmoid(x) (Howard et al., 2019).
TROUPE_DSL(Expr hard_swish(Operand x))
Expr hard_swish(Operand x) { return bind1("HardSwish", {x}); }

TROUPE_OP(HardSwish) {
  op.doc("x * hard_sigmoid(x) (Howard et al., 2019).");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return x * min(max(x / 6.0 + 0.5, 0.0), 1.0);
  });
  op.gradient([](Gradient& g) {
    g.set(0, where(g.x() <= -3.0, 0.0, where(g.x() >= 3.0, g.dy(), g.dy() * (g.x() / 3.0 + 0.5))));
  });
}

}  // namespace troupe
