#include <troupe/functions.hpp>
#include <troupe/ops/gradient.hpp>
#include <troupe/ops/op.hpp>

namespace troupe {

/// Inverse cosine, in radians.
TROUPE_DSL(Expr acos(Operand x))
Expr acos(Operand x) { return bind1("Acos", {x}); }

TROUPE_OP(Acos) {
  op.doc("Inverse cosine, in radians.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return acos(x);
  });
  // In two factors, and differences: they keep the sign of an imaginary 0.
  op.gradient([](Gradient& g) { g.set(0, -(g.dy() * rsqrt(-(g.x() - 1.0)) * rsqrt(g.x() - -1.0))); });
}

}  // namespace troupe
