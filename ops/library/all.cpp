#include <troupe/functions.hpp>
#include <troupe/ops/gradient.hpp>
#include <troupe/ops/op.hpp>
#include <troupe/ops/reduction.hpp>

namespace troupe {

/// Are all true over `axes` (none given: all)?
TROUPE_DSL(Expr all(Operand x, std::vector<std::int64_t> axes = {}, bool keep_dims = false))
Expr all(Operand x, std::vector<std::int64_t> axes, bool keep_dims) { return reduce("All", x, std::move(axes), keep_dims); }

TROUPE_OP(All) {
  op.doc("Are all true over the axes?");
  define_reduction(op, Reduction::all);
  op.not_differentiable();
}

}  // namespace troupe
