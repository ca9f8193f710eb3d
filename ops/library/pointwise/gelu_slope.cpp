#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/bell.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

TROUPE_OP(GeluSlope) {
  op.doc("The derivative of gelu: the normal distribution below x, and x times its density there.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return gelu_slope(x);
  });
  op.gradient([](Gradient& g) {
    // (2 - x^2) times the density; beyond 40 that is 0.
    const Expr x = clip(widened_half(g.x()), -40.0, 40.0),
               slope = 0.3989422804014327 * bell(x * 0.7071067811865476) * (2.0 - square(x));
    g.set(0, g.dy() * cast(slope, g.x().dtype()));
  });
}

}  // namespace troupe
