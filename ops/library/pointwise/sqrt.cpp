#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Square root.
TROUPE_DSL(Expr sqrt(Operand x))
Expr sqrt(Operand x) { return bind1("Sqrt", {x}); }

TROUPE_OP(Sqrt) {
  op.doc("Square root.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return sqrt(x);
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() * 0.5 / g.y()); });
}

}  // namespace troupe
