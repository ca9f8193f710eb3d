#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// log(1 + x), exact near zero.
TROUPE_DSL(Expr log1p(Operand x))
Expr log1p(Operand x) { return bind1("Log1p", {x}); }

TROUPE_OP(Log1p) {
  op.doc("log(1 + x), exact near zero.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return log1p(x);
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() / (g.x() + 1.0)); });
}

}  // namespace troupe
