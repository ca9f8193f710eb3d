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
  op.gradient([](Gradient& g) { g.set(0, g.dy() * rsqrt(1.0 - square(g.x()))); });
}

}  // namespace troupe
