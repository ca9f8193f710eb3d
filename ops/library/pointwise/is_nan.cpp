#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// True where x is not a number.
TROUPE_DSL(Expr is_nan(Operand x))
Expr is_nan(Operand x) { return bind1("IsNan", {x}); }

TROUPE_OP(IsNan) {
  op.doc("Is x not a number?");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return is_nan(x);
  });
  op.not_differentiable();
}

}  // namespace troupe
