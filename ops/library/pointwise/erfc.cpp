#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/bell.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// 1 - erf(x), which also has digits far above 0, where erf has none left for it.
TROUPE_DSL(Expr erfc(Operand x))
Expr erfc(Operand x) { return bind1("Erfc", {x}); }

TROUPE_OP(Erfc) {
  op.doc("1 - erf(x), which also has digits far above 0.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return erfc(x);
  });
  op.gradient([](Gradient& g) {
    g.set(0, g.dy() * cast(-1.1283791670955126 * bell(widened_half(g.x())), g.x().dtype()));
  });
}

}  // namespace troupe
