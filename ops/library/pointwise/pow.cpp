#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x to the power of y.
TROUPE_DSL(Expr pow(Operand x, Operand y))
Expr pow(Operand x, Operand y) { return bind1("Pow", {x, y}); }

TROUPE_OP(Pow) {
  op.doc("x to the power of y.");
  op.pointwise([](auto x, auto y) {
    using namespace reference_scalar;
    return pow(x, y);
  });
  op.gradient([](Gradient& g) {
    // x^0 is 1 everywhere: its slope is 0 even if x^(0 - 1) is not finite. If x^(0 - 1) is finite,
    // it is kept, because the slope's own derivative by y needs it.
    const Expr x = g.x(0), y = g.x(1);
    Expr has_inverse = is_complex(x.dtype()) ? x != 0.0 : is_finite(reciprocal(stop_gradient(x)));
    if (g.needs(0))
      g.set(0, g.dy() * y * pow(x, where(logical_or(y != 0.0, has_inverse), y - 1.0, 0.0)));
    Expr has_log = is_complex(x.dtype()) ? x != 0.0 : x > 0.0;
    if (g.needs(1)) g.set(1, g.dy() * g.y() * log(where(has_log, x, 1.0)));
  });
}

}  // namespace troupe
