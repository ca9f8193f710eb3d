#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// e to the power of x.
TROUPE_DSL(Expr exp(Operand x))
Expr exp(Operand x) { return bind1("Exp", {x}); }

TROUPE_OP(Exp) {
  op.doc("e to the power of x.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return exp(x);
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() * g.y()); });
}

}  // namespace troupe
