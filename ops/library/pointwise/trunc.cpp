#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x without its fraction.
TROUPE_DSL(Expr trunc(Operand x))
Expr trunc(Operand x) { return bind1("Trunc", {x}); }

TROUPE_OP(Trunc) {
  op.doc("x without its fraction.");
  op.pointwise([](auto x) {
    using namespace reference_scalar;
    return trunc(x);
  });
  op.not_differentiable();
}

}  // namespace troupe
