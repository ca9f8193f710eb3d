#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Inverse sine, in radians.
TROUPE_DSL(Expr asin(Operand x))
Expr asin(Operand x) { return bind1("Asin", {x}); }

TROUPE_OP(Asin) {
  op.doc("Inverse sine, in radians.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return asin(x);
  });
  // In two factors. For complex numbers these are differences, which keep the sign of an imaginary
  // 0. For a real 1 a difference would be -0, whose root has the wrong sign.
  op.gradient([](Gradient& g) {
    Expr below = is_complex(g.x().dtype()) ? -(g.x() - 1.0) : 1.0 - g.x();
    g.set(0, g.dy() * rsqrt(below) * rsqrt(g.x() - -1.0));
  });
}

}  // namespace troupe
