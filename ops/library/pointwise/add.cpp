#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Sum.
TROUPE_DSL(Expr operator+(Operand x, Operand y))
Expr operator+(Operand x, Operand y) { return bind1("Add", {x, y}); }

TROUPE_OP(Add) {
  op.doc("Sum.");
  op.pointwise([](auto x, auto y) { return x + y; });
  op.commutative();
  op.gradient([](Gradient& g) {
    if (g.needs(0)) g.set(0, g.dy());
    if (g.needs(1)) g.set(1, g.dy());
  });
}

}  // namespace troupe
