#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// exp(x) - 1, exact near zero.
TROUPE_DSL(Expr expm1(Operand x))
Expr expm1(Operand x) { return bind1("Expm1", {x}); }

TROUPE_OP(Expm1) {
  op.doc("exp(x) - 1, exact near zero.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return expm1(x);
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() * exp(g.x())); });
}

}  // namespace troupe
