#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x * tanh(softplus(x)) (Misra, 2019).
TROUPE_DSL(Expr mish(Operand x))
Expr mish(Operand x) { return bind1("Mish", {x}); }

TROUPE_OP(Mish) {
  op.doc("x * tanh(softplus(x)) (Misra, 2019).");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return x * tanh(max(x, 0.0) + log1p(exp(-abs(x))));
  });
  op.gradient([](Gradient& g) {
    // With m = exp(-|x|), whose powers never overflow, t = tanh(softplus(x)) and 1 - t are
    // quotients without a difference.
    const Expr x = clip(widened_half(g.x()), -1000.0, 1000.0), m = exp(-abs(x)), s = square(m),
               is_above = x >= 0.0;
    const Expr most = where(is_above, 1.0 + 2.0 * m, s + 2.0 * m),
               rest = where(is_above, 2.0 * s, 2.0), all = most + rest, t = most / all;
    const Expr slope = t + x * (rest / all) * (1.0 + t) * sigmoid(x);
    g.set(0, g.dy() * cast(slope, g.x().dtype()));
  });
}

}  // namespace troupe
