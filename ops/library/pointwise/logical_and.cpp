#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Both.
TROUPE_DSL(Expr logical_and(Operand x, Operand y))
Expr logical_and(Operand x, Operand y) { return bind1("LogicalAnd", {x, y}); }

/// `a && b` of bools. Both sides are computed, unlike those of C++.
TROUPE_DSL(Expr operator&&(Operand x, Operand y))
Expr operator&&(Operand x, Operand y) { return bind1("LogicalAnd", {x, y}); }

TROUPE_OP(LogicalAnd) {
  op.doc("Both.");
  op.pointwise([](auto x, auto y) {
    using namespace reference_scalar;
    return logical_and(x, y);
  });
  op.commutative();
  op.not_differentiable();
}

}  // namespace troupe
