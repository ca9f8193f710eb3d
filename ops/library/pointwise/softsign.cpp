#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x / (1 + |x|).
TROUPE_DSL(Expr softsign(Operand x))
Expr softsign(Operand x) { return bind1("Softsign", {x}); }

TROUPE_OP(Softsign) {
  op.doc("x / (1 + |x|).");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return x / (1.0 + abs(x));
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() / square(1.0 + abs(g.x()))); });
}

}  // namespace troupe
