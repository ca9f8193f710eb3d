#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Bits set in either integer.
TROUPE_DSL(Expr bit_or(Operand x, Operand y))
Expr bit_or(Operand x, Operand y) { return bind1("BitOr", {x, y}); }

TROUPE_OP(BitOr) {
  op.doc("Bits set in either integer.");
  op.pointwise([](auto x, auto y) {
    using namespace reference_scalar;
    return bit_or(x, y);
  });
  op.commutative();
  op.not_differentiable();
}

}  // namespace troupe
