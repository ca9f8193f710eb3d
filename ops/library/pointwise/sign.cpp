#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// -1, 0 or 1; NaN stays NaN.
TROUPE_DSL(Expr sign(Operand x))
Expr sign(Operand x) { return bind1("Sign", {x}); }

TROUPE_OP(Sign) {
  op.doc("-1, 0 or 1; NaN stays NaN.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return sign(x);
  });
  op.not_differentiable();
}

}  // namespace troupe
