#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// yes where condition holds, else no; both are computed.
TROUPE_DSL(Expr where(Operand condition, Operand yes, Operand no))
Expr where(Operand condition, Operand yes, Operand no) {
  return bind1("Where", {condition, yes, no});
}

TROUPE_OP(Where) {
  op.doc("The second input where the first holds, else the third.");
  op.pointwise([](auto condition, auto yes, auto no) {
    using namespace reference_scalar;
    return select(condition, yes, no);
  });
  op.gradient([](Gradient& g) {
    if (g.needs(1)) g.set(1, where(g.x(0), g.dy(), 0.0));
    if (g.needs(2)) g.set(2, where(g.x(0), 0.0, g.dy()));
  });
}

}  // namespace troupe
