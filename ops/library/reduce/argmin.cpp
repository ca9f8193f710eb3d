#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/reduction.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// The index along `axis` of the smallest element, as i64; the first of equals.
TROUPE_DSL(Expr argmin(Operand x, std::int64_t axis = -1, bool keep_dims = false))
Expr argmin(Operand x, std::int64_t axis, bool keep_dims) {
  return reduce("ArgMin", x, {axis}, keep_dims);
}

TROUPE_OP(ArgMin) {
  op.doc("The index of the smallest element along one axis; the first of equals.");
  define_reduction(op, Reduction::argmin);
  op.not_differentiable();
}

}  // namespace troupe
