#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Inverse hyperbolic sine.
TROUPE_DSL(Expr asinh(Operand x))
Expr asinh(Operand x) { return bind1("Asinh", {x}); }

TROUPE_OP(Asinh) {
  op.doc("Inverse hyperbolic sine.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return asinh(x);
  });
  op.gradient([](Gradient& g) {
    const Expr x = g.x();
    if (!is_complex(x.dtype())) {
      // From some size on, the 1 is less than a rounding; the square would overflow later.
      const double size = x.dtype() == DType::f16   ? 0x1p6
                          : x.dtype() == DType::f64 ? 0x1p27
                                                    : 0x1p13;
      const Expr is_large = abs(x) > size,
                 slope = where(is_large, reciprocal(abs(where(is_large, x, 1.0))),
                               rsqrt(square(where(is_large, 0.0, x)) + 1.0));
      return g.set(0, g.dy() * slope);
    }
    const Expr ix = complex(-imaginary(x), real(x));  // differences keep the sign of a 0
    g.set(0, g.dy() * rsqrt(-(ix - 1.0)) * rsqrt(ix - -1.0));
  });
}

}  // namespace troupe
