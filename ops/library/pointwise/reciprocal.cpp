#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// One over x.
TROUPE_DSL(Expr reciprocal(Operand x))
Expr reciprocal(Operand x) { return bind1("Reciprocal", {x}); }

TROUPE_OP(Reciprocal) {
  op.doc("One over x.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return reciprocal(x);
  });
  op.gradient([](Gradient& g) { g.set(0, -(g.dy() * square(g.y()))); });
}

}  // namespace troupe
