#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x times x.
TROUPE_DSL(Expr square(Operand x))
Expr square(Operand x) { return bind1("Square", {x}); }

TROUPE_OP(Square) {
  op.doc("x times x.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return square(x);
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() * (2.0 * g.x())); });
}

}  // namespace troupe
