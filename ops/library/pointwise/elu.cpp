#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x above 0, alpha * (exp(x) - 1) below (Clevert et al., 2015).
TROUPE_DSL(Expr elu(Operand x, double alpha = 1.0))
Expr elu(Operand x, double alpha) { return bind1("Elu", {x}, Attrs{{"alpha", alpha}}); }

TROUPE_OP(Elu) {
  op.doc("x above 0, alpha * (exp(x) - 1) below (Clevert et al., 2015).");
  op.attr<double>("alpha", 1.0);
  op.pointwise<1>(
      [](auto x, auto p) {
        using namespace reference_scalar;
        return select(x > 0.0, x, p[0] * expm1(x));
      },
      {"alpha"});
  op.gradient([](Gradient& g) {
    double alpha = g.attrs().get<double>("alpha");
    g.set(0, where(g.x() > 0.0, g.dy(), g.dy() * alpha * exp(minimum(g.x(), 0.0))));
  });
}

}  // namespace troupe
