#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x shifted left by y bits, modulo the width.
TROUPE_DSL(Expr shift_left(Operand x, Operand y))
Expr shift_left(Operand x, Operand y) { return bind1("ShiftLeft", {x, y}); }

TROUPE_OP(ShiftLeft) {
  op.doc("x shifted left by y bits, modulo the width.");
  op.pointwise([](auto x, auto y) {
    using namespace reference_scalar;
    return shift_left(x, y);
  });
  op.not_differentiable();
}

}  // namespace troupe
