#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/bell.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Error function.
TROUPE_DSL(Expr erf(Operand x))
Expr erf(Operand x) { return bind1("Erf", {x}); }

TROUPE_OP(Erf) {
  op.doc("Error function.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return erf(x);
  });
  op.gradient([](Gradient& g) {
    g.set(0, g.dy() * cast(1.1283791670955126 * bell(widened_half(g.x())), g.x().dtype()));
  });
}

}  // namespace troupe
