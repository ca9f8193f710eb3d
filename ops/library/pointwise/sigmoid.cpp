#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// 1 / (1 + exp(-x)).
TROUPE_DSL(Expr sigmoid(Operand x))
Expr sigmoid(Operand x) { return bind1("Sigmoid", {x}); }

TROUPE_OP(Sigmoid) {
  op.doc("1 / (1 + exp(-x)).");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return sigmoid(x);
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() * g.y() * (1.0 - g.y())); });
}

}  // namespace troupe
