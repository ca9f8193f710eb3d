#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// True where x is neither infinite nor NaN.
TROUPE_DSL(Expr is_finite(Operand x))
Expr is_finite(Operand x) { return bind1("IsFinite", {x}); }

TROUPE_OP(IsFinite) {
  op.doc("Is x neither infinite nor NaN?");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return is_finite(x);
  });
  op.not_differentiable();
}

}  // namespace troupe
