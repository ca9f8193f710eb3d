#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// The larger of x and 0.
TROUPE_DSL(Expr relu(Operand x))
Expr relu(Operand x) { return bind1("Relu", {x}); }

TROUPE_OP(Relu) {
  op.doc("The larger of x and 0.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return max(x, 0.0);
  });
  // by y, so that x need not be kept; at NaN it passes dy on
  op.gradient([](Gradient& g) { g.set(0, where(g.y() <= 0.0, 0.0, g.dy())); });
}

}  // namespace troupe
