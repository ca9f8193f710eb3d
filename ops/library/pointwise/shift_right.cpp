#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x shifted right by y bits, modulo the width; signed integers keep their sign.
TROUPE_DSL(Expr shift_right(Operand x, Operand y))
Expr shift_right(Operand x, Operand y) { return bind1("ShiftRight", {x, y}); }

TROUPE_OP(ShiftRight) {
  op.doc("x shifted right by y bits, modulo the width; signed integers keep their sign.");
  op.pointwise([](auto x, auto y) {
    using namespace reference_scalar;
    return shift_right(x, y);
  });
  op.not_differentiable();
}

}  // namespace troupe
