#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/reduction.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// The largest over `axes` (none given: all); NaN if any is.
TROUPE_DSL(Expr reduce_max(Operand x, detail::Axes axes = {}, bool keep_dims = false))
Expr reduce_max(Operand x, detail::Axes axes, bool keep_dims) {
  return reduce("Max", x, std::move(axes), keep_dims);
}

TROUPE_OP(Max) {
  op.doc("The largest over the axes; NaN if any is.");
  define_reduction(op, Reduction::max);
  op.gradient([](Gradient& g) { g.set(0, spread_to_extremes(g)); });
}

}  // namespace troupe
