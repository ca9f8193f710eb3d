#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// The nearest integer; halves go to the even one.
TROUPE_DSL(Expr round(Operand x))
Expr round(Operand x) { return bind1("Round", {x}); }

TROUPE_OP(Round) {
  op.doc("The nearest integer; halves go to the even one.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return round(x);
  });
  op.not_differentiable();
}

}  // namespace troupe
