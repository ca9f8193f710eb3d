#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Bits set in both integers.
TROUPE_DSL(Expr bit_and(Operand x, Operand y))
Expr bit_and(Operand x, Operand y) { return bind1("BitAnd", {x, y}); }

TROUPE_OP(BitAnd) {
  op.doc("Bits set in both integers.");
  op.pointwise([](auto x, auto y) {
    using namespace reference_scalar;
    return bit_and(x, y);
  });
  op.commutative();
  op.not_differentiable();
}

}  // namespace troupe
