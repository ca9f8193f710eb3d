#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Absolute value; of complex elements their magnitude, which is real.
TROUPE_DSL(Expr abs(Operand x))
Expr abs(Operand x) {
  return x.is_expr() && is_complex(x.expr().dtype()) ? magnitude(x) : bind1("Abs", {x});
}

TROUPE_OP(Abs) {
  op.doc("Absolute value.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return abs(x);
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() * sign(g.x())); });
}

}  // namespace troupe
