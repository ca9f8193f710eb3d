#include <troupe/controlflow/list_ops.hpp>

namespace troupe {

Expr list_read(Operand list, Operand index) { return list_read(list, index, element_of(list)); }
Expr list_read(Operand list, Operand index, const ValueSpec& value) {
  return bind1("ListRead", {list, index.as_written()}, attrs_of(value));
}

TROUPE_OP(ListRead) {
  op.doc("One element of the list; zeros if it was not written and its shape is known.");
  op.inputs(2);
  op.takes_lists();
  op.takes_strings();
  spec_attrs(op);
  op.infer([](Inference& c) {
    require_list(c, 0);
    require_integers(c, 1, 0, "the index");
    c.output(inferred_element(c, 0));
  });
  op.gradient([](Gradient& g) { g.set(0, Cotangent::sparse(g.x(1), g.dy(), g.x(0))); });
  op.kernel([](const KernelSetup& s) {
    return with_host_inputs({1}, [attrs = s.attrs](KernelContext& c) {
      Value element = read_or_zeros(c, list_input(c, 0), integer_of(c.input(1)), spec_of(attrs));
      check_element(element, attrs);
      c.set(0, std::move(element));
    });
  });
}

// Reads a cotangent of a list: elements past its end are zeros, too.
TROUPE_OP(ListReadLike) {
  op.doc("One element of the list, or zeros like the third input if there is none.");
  op.inputs(2, 3);
  op.shape_only({2});
  op.takes_lists();
  op.takes_strings();
  spec_attrs(op);
  op.infer([](Inference& c) {
    require_list(c, 0);
    require_integers(c, 1, 0, "the index");
    c.output(inferred_like(c, 2));
  });
  op.gradient([](Gradient& g) { g.set(0, Cotangent::sparse(g.x(1), g.dy(), g.x(0))); });
  op.kernel([](const KernelSetup& s) {
    return with_host_inputs({1}, [attrs = s.attrs](KernelContext& c) {
      Value element = list_input(c, 0).find(integer_of(c.input(1)));
      c.set(0, element.has_value() ? std::move(element) : zeros(c, spec_like(c, attrs, 2)));
    });
  });
}

}  // namespace troupe
