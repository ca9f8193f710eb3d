#include <troupe/controlflow/list_ops.hpp>

namespace troupe {

Expr list_write(Operand list, Operand index, Operand value, bool dynamic_size) {
  return bind1("ListWrite", {list, index.as_written(), element_operand(value)},
               Attrs{{"dynamic_size", dynamic_size}});
}

TROUPE_OP(ListWrite) {
  op.doc(
      "The list with the third input as the element of that index, which was not written before.");
  declare_element_at(op);
  op.attr<bool>("dynamic_size", false);
  op.gradient(set_element_gradient);
  op.kernel([](const KernelSetup& s) {
    return with_host_inputs({1}, [grows = s.attrs.get<bool>("dynamic_size")](KernelContext& c) {
      List list = take_list(c, 0);
      std::int64_t i = integer_of(c.input(1));
      if (grows && i >= list.length()) list.reach(i);
      list.write(i, std::move(c.all_inputs()[2]));
      c.set(0, std::move(list));
    });
  });
}

}  // namespace troupe
