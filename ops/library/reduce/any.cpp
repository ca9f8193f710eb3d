#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/reduction.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// True if any element over `axes` (none given: all) is true. A number is true if it is not 0; so
/// NaN is true.
TROUPE_DSL(Expr any(Operand x, detail::Axes axes = {}, bool keep_dims = false))
Expr any(Operand x, detail::Axes axes, bool keep_dims) {
  const Composite c("any", {x});
  return reduce("Any", cast(c[0], DType::boolean), std::move(axes), keep_dims);
}

TROUPE_OP(Any) {
  op.doc("Is any true over the axes?");
  define_reduction(op, Reduction::any);
  op.not_differentiable();
}

}  // namespace troupe
