#include <troupe/controlflow/list_ops.hpp>

#include <fmt/format.h>

namespace troupe {

Expr list_length(Operand list) { return bind1("ListLength", {list}); }

Expr common_length(const std::vector<Operand>& lists, const Site& site) {
  return bind1("ListLength", lists, {}, site);
}

TROUPE_OP(ListLength) {
  op.doc(
      "The number of elements of the list, written or not, an i64 scalar; of all lists, if there "
      "are several, which must agree.");
  op.inputs(1, -1);
  op.shape_only({0});
  op.takes_lists();
  op.takes_strings();
  op.not_differentiable();
  op.infer([](Inference& c) {
    for (int i = 0; i < c.inputs(); ++i) require_list(c, i);
    c.output(DType::i64, Shape{});
  });
  op.run([](KernelContext& c) {
    const std::int64_t n = list_input(c, 0).length();
    for (int i = 1; i < static_cast<int>(c.all_inputs().size()); ++i)
      if (const std::int64_t other = list_input(c, i).length(); other != n)
        throw Error(
            Code::invalid_argument,
            fmt::format("the inputs have {} elements and {}; inputs of one loop need equal lengths",
                        n, other));
    c.set(0, Tensor::scalar(n));
  });
}

}  // namespace troupe
