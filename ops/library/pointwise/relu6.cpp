#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x cut to [0, 6].
TROUPE_DSL(Expr relu6(Operand x))
Expr relu6(Operand x) { return bind1("Relu6", {x}); }

TROUPE_OP(Relu6) {
  op.doc("x cut to [0, 6].");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return min(max(x, 0.0), 6.0);
  });
  op.gradient(
      [](Gradient& g) { g.set(0, where(logical_and(g.x() > 0.0, g.x() < 6.0), g.dy(), 0.0)); });
}

}  // namespace troupe
