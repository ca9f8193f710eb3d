#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// log(sigmoid(x)), without overflow.
TROUPE_DSL(Expr log_sigmoid(Operand x))
Expr log_sigmoid(Operand x) { return bind1("LogSigmoid", {x}); }

TROUPE_OP(LogSigmoid) {
  op.doc("log(sigmoid(x)), without overflow.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return min(x, 0.0) - log1p(exp(-abs(x)));
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() * sigmoid(-g.x())); });
}

}  // namespace troupe
