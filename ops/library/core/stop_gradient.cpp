#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x itself; no gradient flows through it.
TROUPE_DSL(Expr stop_gradient(Operand x))
Expr stop_gradient(Operand x) { return bind1("StopGradient", {x}); }

TROUPE_OP(StopGradient) {
  op.doc("The input, unchanged; gradients end here.");
  op.inputs(1);
  op.takes_lists();
  op.takes_strings();
  op.not_differentiable();
  op.infer([](Inference& c) { c.output(c.input(0)); });
  op.run([](KernelContext& c) { c.set(0, std::move(c.all_inputs()[0])); });
}

}  // namespace troupe
