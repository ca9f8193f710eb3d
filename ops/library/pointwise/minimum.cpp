#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// The smaller of the two; NaN if either is.
TROUPE_DSL(Expr minimum(Operand x, Operand y))
Expr minimum(Operand x, Operand y) { return bind1("Minimum", {x, y}); }

TROUPE_OP(Minimum) {
  op.doc("The smaller of the two; NaN if either is.");
  op.pointwise([](auto x, auto y) {
    using namespace reference_scalar;
    return min(x, y);
  });
  op.gradient([](Gradient& g) {
    if (g.needs(0)) g.set(0, where(g.x(0) <= g.x(1), g.dy(), 0.0));
    if (g.needs(1)) g.set(1, where(g.x(0) <= g.x(1), 0.0, g.dy()));
  });
}

}  // namespace troupe
