#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Exactly one.
TROUPE_DSL(Expr logical_xor(Operand x, Operand y))
Expr logical_xor(Operand x, Operand y) { return bind1("LogicalXor", {x, y}); }

TROUPE_OP(LogicalXor) {
  op.doc("Exactly one.");
  op.pointwise([](auto x, auto y) {
    using namespace reference_scalar;
    return logical_xor(x, y);
  });
  op.commutative();
  op.not_differentiable();
}

}  // namespace troupe
