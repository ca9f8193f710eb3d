#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/reduction.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// The smallest over `axes` (none given: all); NaN if any is.
TROUPE_DSL(Expr reduce_min(Operand x, detail::Axes axes = {}, bool keep_dims = false))
Expr reduce_min(Operand x, detail::Axes axes, bool keep_dims) {
  return reduce("Min", x, std::move(axes), keep_dims);
}

TROUPE_OP(Min) {
  op.doc("The smallest over the axes; NaN if any is.");
  define_reduction(op, Reduction::min);
  op.gradient([](Gradient& g) { g.set(0, spread_to_extremes(g)); });
}

}  // namespace troupe
