#include <troupe/functions.hpp>
#include <troupe/ops/gradient.hpp>
#include <troupe/ops/op.hpp>

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
  // In two factors, and differences: they keep the sign of an imaginary 0.
  op.gradient([](Gradient& g) { g.set(0, g.dy() * rsqrt(-(g.x() - 1.0)) * rsqrt(g.x() - -1.0)); });
}

}  // namespace troupe
