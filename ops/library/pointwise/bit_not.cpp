#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Every bit of an integer inverted.
TROUPE_DSL(Expr bit_not(Operand x))
Expr bit_not(Operand x) { return bind1("BitNot", {x}); }

TROUPE_OP(BitNot) {
  op.doc("Every bit of an integer inverted.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return bit_not(x);
  });
  op.not_differentiable();
}

}  // namespace troupe
