#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// One over the square root.
TROUPE_DSL(Expr rsqrt(Operand x))
Expr rsqrt(Operand x) { return bind1("Rsqrt", {x}); }

TROUPE_OP(Rsqrt) {
  op.doc("One over the square root.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return rsqrt(x);
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() * -0.5 * g.y() / g.x()); });
}

}  // namespace troupe
