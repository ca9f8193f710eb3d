#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// The largest integer not above x.
TROUPE_DSL(Expr floor(Operand x))
Expr floor(Operand x) { return bind1("Floor", {x}); }

TROUPE_OP(Floor) {
  op.doc("The largest integer not above x.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return floor(x);
  });
  op.not_differentiable();
}

}  // namespace troupe
