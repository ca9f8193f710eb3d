#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Not x.
TROUPE_DSL(Expr logical_not(Operand x))
Expr logical_not(Operand x) { return bind1("LogicalNot", {x}); }

/// `!x` of bools.
TROUPE_DSL(Expr operator!(Operand x))
Expr operator!(Operand x) { return bind1("LogicalNot", {x}); }

TROUPE_OP(LogicalNot) {
  op.doc("Not x.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return logical_not(x);
  });
  op.not_differentiable();
}

}  // namespace troupe
