#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Either.
TROUPE_DSL(Expr logical_or(Operand x, Operand y))
Expr logical_or(Operand x, Operand y) { return bind1("LogicalOr", {x, y}); }

/// `a || b` of bools. Both sides are computed, unlike those of C++.
TROUPE_DSL(Expr operator||(Operand x, Operand y))
Expr operator||(Operand x, Operand y) { return bind1("LogicalOr", {x, y}); }

TROUPE_OP(LogicalOr) {
  op.doc("Either.");
  op.pointwise([](auto x, auto y) {
    using namespace reference_scalar;
    return logical_or(x, y);
  });
  op.commutative();
  op.not_differentiable();
}

}  // namespace troupe
