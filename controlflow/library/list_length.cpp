#include <troupe/controlflow/list_ops.hpp>

namespace troupe {

Expr list_length(Operand list) { return bind1("ListLength", {list}); }

TROUPE_OP(ListLength) {
  op.doc("The number of elements of the list, written or not, an i64 scalar.");
  op.inputs(1);
  op.shape_only({0});
  op.takes_lists();
  op.takes_strings();
  op.not_differentiable();
  op.infer([](Inference& c) {
    require_list(c, 0);
    c.output(DType::i64, Shape{});
  });
  op.run([](KernelContext& c) { c.set(0, Tensor::scalar(list_input(c, 0).length())); });
}

}  // namespace troupe
