#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// True where x is infinite.
TROUPE_DSL(Expr is_inf(Operand x))
Expr is_inf(Operand x) { return bind1("IsInf", {x}); }

TROUPE_OP(IsInf) {
  op.doc("Is x infinite?");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return is_inf(x);
  });
  op.not_differentiable();
}

}  // namespace troupe
