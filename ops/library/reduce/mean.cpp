#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/reduction.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// The mean over `axes` (none given: all); of no elements, NaN.
TROUPE_DSL(Expr mean(Operand x, detail::Axes axes = {}, bool keep_dims = false))
Expr mean(Operand x, detail::Axes axes, bool keep_dims) {
  return reduce("Mean", x, std::move(axes), keep_dims);
}

TROUPE_OP(Mean) {
  op.doc("The mean over the axes; of no elements, NaN.");
  define_reduction(op, Reduction::mean);
  op.gradient([](Gradient& g) { g.set(0, spread(g, divided_by_count(g, g.dy()))); });
}

}  // namespace troupe
