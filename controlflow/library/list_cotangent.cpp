// Ops of gradients on cotangents of lists (ops/graph/gradient.hpp): lists whose slots may be
// missing. A cotangent has the spec of its list, so that a loop's variable keeps its own.
#include <troupe/controlflow/list_ops.hpp>

namespace troupe {

TROUPE_OP(ListSum) {
  op.doc("Two lists added element by element; an element that is missing is zero.");
  op.inputs(2);
  op.takes_lists();
  op.infer([](Inference& c) {
    require_list(c, 0);
    ValueSpec a = c.input(0), b = c.input(1);
    c.require(a.depth == b.depth && a.dtype == b.dtype && a.shape.is_compatible(b.shape),
              a.text() + " and " + b.text() + " cannot be added");
    a.shape = a.shape.merge(b.shape);  // both belong to one list; one shape may be less known
    c.output(a);
  });
  op.gradient([](Gradient& g) {
    g.set(0, g.cotangent());
    g.set(1, g.cotangent());
  });
  op.run([](KernelContext& c) {
    c.set(0, sum_of_values(c, std::move(c.all_inputs()[0]), std::move(c.all_inputs()[1])));
  });
}

TROUPE_OP(ListAccumulate) {
  op.doc("The list with the third input added to the element of that index; it grows to hold it.");
  declare_element_at(op);
  op.gradient([](Gradient& g) {
    g.set(0, g.cotangent());
    if (!g.needs(2)) return;
    std::vector<Operand> operands{g.dy(), g.x(1)};
    Attrs attrs = attrs_like(g.x(2), operands);
    g.set(2, bind1("ListReadLike", operands, attrs, operands[0].site()));
  });
  op.kernel([](const KernelSetup&) {
    return with_host_inputs({1}, [](KernelContext& c) {
      List list = take_list(c, 0);
      std::int64_t i = integer_of(c.input(1));
      list.reach(i);
      list.put(i, sum_of_values(c, list.take(i), std::move(c.all_inputs()[2])));
      c.set(0, std::move(list));
    });
  });
}

TROUPE_OP(ListTake) {
  op.doc(
      "The list without the element of that index, and the element, or zeros like the third input "
      "if there is none.");
  op.inputs(2, 3);
  op.shape_only({2});
  op.takes_lists();
  spec_attrs(op);
  op.infer([](Inference& c) {
    require_list(c, 0);
    require_integers(c, 1, 0, "the index");
    c.output(c.input(0));
    c.output(inferred_like(c, 2));
  });
  op.gradient([](Gradient& g) {
    // The rest has no element in that slot, which stacks as zeros: the slot of the rest's cotangent
    // is replaced or erased.
    if (g.has_dy(1)) g.set(0, bind1("ListPut", {g.dy(0), g.x(1), g.dy(1)}));
    else g.set(0, bind1("ListErase", {g.dy(0), g.x(1)}));
  });
  op.kernel([](const KernelSetup& s) {
    return with_host_inputs({1}, [attrs = s.attrs](KernelContext& c) {
      List list = take_list(c, 0);
      std::int64_t i = integer_of(c.input(1));
      // The last is popped, so that a push's cotangent is no longer than the list.
      Value element = i >= list.length()       ? Value()
                      : i == list.length() - 1 ? list.pop()
                                               : list.take(i);
      c.set(1, element.has_value() ? std::move(element) : zeros(c, spec_like(c, attrs, 2)));
      c.set(0, std::move(list));
    });
  });
}

TROUPE_OP(ListPut) {
  op.doc(
      "The list with the third input as the element of that index, whatever it was; it grows to "
      "hold it.");
  declare_element_at(op);
  op.gradient(set_element_gradient);
  op.kernel([](const KernelSetup&) {
    return with_host_inputs({1}, [](KernelContext& c) {
      List list = take_list(c, 0);
      list.put(integer_of(c.input(1)), std::move(c.all_inputs()[2]));
      c.set(0, std::move(list));
    });
  });
}

}  // namespace troupe
