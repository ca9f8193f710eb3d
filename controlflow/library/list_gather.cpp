#include <troupe/controlflow/list_ops.hpp>

namespace troupe {

Expr list_gather(Operand list, Operand indices) {
  return bind1("ListGather", {list, indices.as_written()});
}

namespace {
void list_gather_gradient(Gradient& g) {
  g.set(0, bind1("ListScatterAdd", {zero_cotangent(g.x(0)), g.x(1), g.dy()}));
}
}  // namespace

TROUPE_OP(ListGather) {
  op.doc(
      "The elements of the list at the indices in the second input, of one shape, along a new "
      "leading axis.");
  op.inputs(2);
  op.takes_lists();
  op.takes_strings();
  op.infer([](Inference& c) {
    require_tensor_list(c, 0);
    require_integers(c, 1, 1, "indices");
    c.output(c.dtype(0), with_leading(c.shape(1).has_rank() ? c.shape(1)[0] : kAny, c.shape(0)));
  });
  op.gradient(list_gather_gradient);
  op.kernel([](const KernelSetup&) {
    return with_host_inputs({1}, [](KernelContext& c) {
      const List& list = list_input(c, 0);
      std::vector<std::int64_t> indices = integers_of(c.input(1));
      Shape element = shape_of_all(list, indices);
      Rows rows(c, list.dtype(),
                element.with_inserted(0, static_cast<std::int64_t>(indices.size())));
      for (std::int64_t i : indices) {
        if (const Value& v = list.read(i); v.has_value()) rows.add(v.tensor());
        else rows.add_zeros(element.elements());
      }
      c.set(0, rows.finish());
    });
  });
}

TROUPE_OP(ListGatherLike) {
  op.doc(
      "The elements of the list at the indices in the second input as a tensor like the third; "
      "zeros where there are none.");
  op.inputs(2, 3);
  op.shape_only({2});
  op.takes_lists();
  op.takes_strings();
  spec_attrs(op);
  op.infer([](Inference& c) {
    require_tensor_list(c, 0);
    require_integers(c, 1, 1, "indices");
    c.output(inferred_like(c, 2));
  });
  op.gradient(list_gather_gradient);
  op.kernel([](const KernelSetup& s) {
    return with_host_inputs({1}, [attrs = s.attrs](KernelContext& c) {
      const List& list = list_input(c, 0);
      Shape shape = spec_like(c, attrs, 2).shape;
      Rows rows(c, list.dtype(), shape);
      for (std::int64_t i : integers_of(c.input(1))) {
        if (const Value& v = list.find(i); v.has_value()) rows.add(v.tensor());
        else rows.add_zeros(shape.without(0).elements());
      }
      c.set(0, rows.finish());
    });
  });
}

}  // namespace troupe
