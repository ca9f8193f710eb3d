#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Bits set in exactly one integer.
TROUPE_DSL(Expr bit_xor(Operand x, Operand y))
Expr bit_xor(Operand x, Operand y) { return bind1("BitXor", {x, y}); }

TROUPE_OP(BitXor) {
  op.doc("Bits set in exactly one integer.");
  op.pointwise([](auto x, auto y) {
    using namespace reference_scalar;
    return bit_xor(x, y);
  });
  op.commutative();
  op.not_differentiable();
}

}  // namespace troupe
