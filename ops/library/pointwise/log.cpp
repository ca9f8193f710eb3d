#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Natural logarithm.
TROUPE_DSL(Expr log(Operand x))
Expr log(Operand x) { return bind1("Log", {x}); }

TROUPE_OP(Log) {
  op.doc("Natural logarithm.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return log(x);
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() / g.x()); });
}

}  // namespace troupe
