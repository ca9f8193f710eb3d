#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

#include <fmt/format.h>

namespace troupe {

/// x cut to [low, high].
TROUPE_DSL(Expr clip(Operand x, double low, double high))
Expr clip(Operand x, double low, double high) {
  Composite c("clip", {x});
  c.require(low <= high,
            fmt::format("low must not be above high, and neither NaN: [{}, {}]", low, high));
  return bind1("Clip", {c[0]}, Attrs{{"low", low}, {"high", high}});
}

TROUPE_OP(Clip) {
  op.doc("x cut to [low, high].");
  op.attr<double>("low");
  op.attr<double>("high");
  op.pointwise<1>(
      [](auto x, auto p) {
        using namespace reference_scalar;
        return min(max(x, p[0]), p[1]);
      },
      {"low", "high"});
  op.gradient([](Gradient& g) {
    double low = g.attrs().get<double>("low");
    double high = g.attrs().get<double>("high");
    g.set(0, where(logical_and(g.x() >= low, g.x() <= high), g.dy(), 0.0));
  });
}

}  // namespace troupe
