#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// The largest integer not above x / y.
TROUPE_DSL(Expr floor_div(Operand x, Operand y))
Expr floor_div(Operand x, Operand y) { return bind1("FloorDiv", {x, y}); }

TROUPE_OP(FloorDiv) {
  op.doc("The largest integer not above x / y.");
  op.pointwise([](auto x, auto y) {
    using namespace reference_scalar;
    return floor_div(x, y);
  });
  op.not_differentiable();
}

}  // namespace troupe
