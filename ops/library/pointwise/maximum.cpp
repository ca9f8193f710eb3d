#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// The larger of the two; NaN if either is.
TROUPE_DSL(Expr maximum(Operand x, Operand y))
Expr maximum(Operand x, Operand y) { return bind1("Maximum", {x, y}); }

TROUPE_OP(Maximum) {
  op.doc("The larger of the two; NaN if either is.");
  op.pointwise([](auto x, auto y) {
    using namespace reference_scalar;
    return max(x, y);
  });
  op.gradient([](Gradient& g) {
    if (g.needs(0)) g.set(0, where(g.x(0) >= g.x(1), g.dy(), 0.0));
    if (g.needs(1)) g.set(1, where(g.x(0) >= g.x(1), 0.0, g.dy()));
  });
}

}  // namespace troupe
