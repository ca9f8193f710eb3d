#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/reduction.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// True if all elements over `axes` (none given: all) are true. A number is true if it is not 0; so
/// NaN is true.
TROUPE_DSL(Expr all(Operand x, detail::Axes axes = {}, bool keep_dims = false))
Expr all(Operand x, detail::Axes axes, bool keep_dims) {
  const Composite c("all", {x});
  return reduce("All", cast(c[0], DType::boolean), std::move(axes), keep_dims);
}

TROUPE_OP(All) {
  op.doc("Are all true over the axes?");
  define_reduction(op, Reduction::all);
  op.not_differentiable();
}

}  // namespace troupe
