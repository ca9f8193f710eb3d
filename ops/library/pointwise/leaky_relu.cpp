#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x above 0, alpha * x below.
TROUPE_DSL(Expr leaky_relu(Operand x, double alpha = 0.01))
Expr leaky_relu(Operand x, double alpha) {
  return bind1("LeakyRelu", {x}, Attrs{{"alpha", alpha}});
}

TROUPE_OP(LeakyRelu) {
  op.doc("x above 0, alpha * x below.");
  op.attr<double>("alpha", 0.01);
  op.pointwise<1>(
      [](auto x, auto p) {
        using namespace reference_scalar;
        return select(x > 0.0, x, p[0] * x);
      },
      {"alpha"});
  op.gradient([](Gradient& g) {
    double alpha = g.attrs().get<double>("alpha");
    g.set(0, where(g.x() > 0.0, g.dy(), g.dy() * alpha));
  });
}

}  // namespace troupe
