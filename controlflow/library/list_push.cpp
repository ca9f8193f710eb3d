#include <troupe/controlflow/list_ops.hpp>

namespace troupe {

Expr list_push(Operand list, Operand value) {
  return bind1("ListPush", {list, element_operand(value)});
}

TROUPE_OP(ListPush) {
  op.doc("The list with the second input as one more element.");
  op.inputs(2);
  op.takes_lists();
  op.takes_strings();
  op.infer([](Inference& c) {
    require_list(c, 0);
    require_element(c, 0, 1);
    c.output(c.input(0));
  });
  op.gradient([](Gradient& g) {
    // By index, for a cotangent may be shorter than the list.
    Exprs d = take_cotangent(g.dy(), list_length(g.x(0)), g.x(1));
    g.set(0, d[0]);
    g.set(1, d[1]);
  });
  op.run([](KernelContext& c) {
    List list = take_list(c, 0);
    list.push(std::move(c.all_inputs()[1]));
    c.set(0, std::move(list));
  });
}

}  // namespace troupe
