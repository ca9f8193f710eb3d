#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/reduction.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// The index along `axis` of the largest element, as i64; the first of equals.
TROUPE_DSL(Expr argmax(Operand x, std::int64_t axis = -1, bool keep_dims = false))
Expr argmax(Operand x, std::int64_t axis, bool keep_dims) {
  return reduce("ArgMax", x, {axis}, keep_dims);
}

TROUPE_OP(ArgMax) {
  op.doc("The index of the largest element along one axis; the first of equals.");
  define_reduction(op, Reduction::argmax);
  op.not_differentiable();
}

}  // namespace troupe
