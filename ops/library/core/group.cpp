#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// One node that fires after all of `after`: fetch it to run them. Yields true.
TROUPE_DSL(Expr group(const std::vector<Expr>& after,
                      std::source_location at = std::source_location::current()))
Expr group(const std::vector<Expr>& after, std::source_location at) {
  std::vector<Operand> operands;
  for (const Expr& e : after) operands.emplace_back(e, at);
  return bind1("Group", operands, {}, at);
}

TROUPE_OP(Group) {
  op.doc("True, once all inputs have arrived.");
  op.inputs(1, -1);
  op.takes_lists();
  op.takes_strings();
  op.not_differentiable();
  op.infer([](Inference& c) { c.output(DType::boolean, Shape{}); });
  op.run([](KernelContext& c) { c.set(0, Tensor::scalar(true)); });
}

}  // namespace troupe
