#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x cut to [-1, 1].
TROUPE_DSL(Expr hard_tanh(Operand x))
Expr hard_tanh(Operand x) { return bind1("HardTanh", {x}); }

TROUPE_OP(HardTanh) {
  op.doc("x cut to [-1, 1].");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return min(max(x, -1.0), 1.0);
  });
  op.gradient(
      [](Gradient& g) { g.set(0, where(logical_and(g.x() > -1.0, g.x() < 1.0), g.dy(), 0.0)); });
}

}  // namespace troupe
