#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// The smallest integer not below x.
TROUPE_DSL(Expr ceil(Operand x))
Expr ceil(Operand x) { return bind1("Ceil", {x}); }

TROUPE_OP(Ceil) {
  op.doc("The smallest integer not below x.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return ceil(x);
  });
  op.not_differentiable();
}

}  // namespace troupe
