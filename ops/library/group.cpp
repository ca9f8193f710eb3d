#include <troupe/functions.hpp>
#include <troupe/ops/gradient.hpp>
#include <troupe/ops/op.hpp>

namespace troupe {

/// One node that fires after all of `after`: fetch it to run them. Yields true.
TROUPE_DSL(Expr group(const std::vector<Expr>& after))
Expr group(const std::vector<Expr>& after) {
  std::vector<Operand> operands(after.begin(), after.end());
  return bind1("Group", operands, {}, operands.empty() ? Site() : operands[0].site());
}

TROUPE_OP(Group) {
  op.doc("True, once all inputs have arrived.");
  op.inputs(1, -1);
  op.not_differentiable();
  op.infer([](Inference& c) { c.output(DType::boolean, Shape{}); });
  op.run([](KernelContext& c) { c.set(0, Tensor::scalar(true)); });
}

}  // namespace troupe
