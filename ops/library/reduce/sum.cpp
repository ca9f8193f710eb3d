#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/reduction.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// The sum over `axes` (none given: all); of bools how many are true, i64. In x's dtype: integers
/// wrap, cast small ones first.
TROUPE_DSL(Expr sum(Operand x, detail::Axes axes = {}, bool keep_dims = false))
Expr sum(Operand x, detail::Axes axes, bool keep_dims) {
  return reduce("Sum", counted(x), std::move(axes), keep_dims);
}

TROUPE_OP(Sum) {
  op.doc("The sum over the axes.");
  define_reduction(op, Reduction::sum);
  op.gradient([](Gradient& g) { g.set(0, spread(g, g.dy())); });
}

}  // namespace troupe
