#include <troupe/controlflow/list_ops.hpp>

#include <fmt/format.h>

namespace troupe {

namespace {
Popped popped(const Operand& list, const ValueSpec& value) {
  std::vector<Operand> operands{list};
  Exprs out = bind_op("ListPop", operands, attrs_of(value), list.site());
  return {out[0], out[1]};
}
}  // namespace

Popped list_pop(Operand list) { return popped(list, element_of(list)); }
Popped list_pop(Operand list, const ValueSpec& value) { return popped(list, value); }

TROUPE_OP(ListPop) {
  op.doc("The list without its last element, and that element.");
  op.inputs(1);
  op.takes_lists();
  op.takes_strings();
  spec_attrs(op);
  op.infer([](Inference& c) {
    require_list(c, 0);
    c.output(c.input(0));
    c.output(inferred_element(c, 0));
  });
  op.gradient([](Gradient& g) {
    // The list's cotangent may hold any value in the popped element's slot: the cotangent is put
    // there, not pushed. If the element is unused, the slot is erased.
    if (!g.has_dy(1)) g.set(0, bind1("ListErase", {g.dy(0), list_length(g.y(0))}));
    else g.set(0, bind1("ListPut", {g.dy(0), list_length(g.y(0)), g.dy(1)}));
  });
  op.run([](KernelContext& c, const Attrs& attrs) {
    List list = take_list(c, 0);
    Value last = list.pop();
    if (!last.has_value()) {
      list.grow(list.length() + 1);
      last = read_or_zeros(c, list, list.length() - 1, spec_of(attrs));
      list.pop();
    }
    check_element(last, attrs);
    c.set(0, std::move(list));
    c.set(1, std::move(last));
  });
}

}  // namespace troupe
