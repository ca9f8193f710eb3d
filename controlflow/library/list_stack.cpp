#include <troupe/controlflow/known_length.hpp>
#include <troupe/controlflow/list_ops.hpp>

#include <numeric>

namespace troupe {

Expr list_stack(Operand list) {
  const auto* graph = list.is_expr() ? dynamic_cast<Graph*>(&list.expr().reader()) : nullptr;
  if (graph) {
    const ValueSpec spec = list.expr().spec();
    if (spec.depth == 1 && spec.shape.is_known())
      if (const std::int64_t n = known_length(*graph, list.expr().edge()); n >= 0)
        return bind1("ListStackLike", {list},
                     attrs_of({spec.dtype, spec.shape.with_inserted(0, n)}));
  }
  return bind1("ListStack", {list});
}

namespace {
void stack_rows(Rows& rows, const List& list, std::int64_t n, std::int64_t elements) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (const Value& v = list.find(i); v.has_value()) rows.add(v.tensor());
    else rows.add_zeros(elements);
  }
}

void list_stack_gradient(Gradient& g) { g.set(0, unstacked_as(g.x(0), g.dy())); }
}  // namespace

TROUPE_OP(ListStack) {
  op.doc("The elements of the list, of one shape, along a new leading axis.");
  op.inputs(1);
  op.takes_lists();
  op.takes_strings();
  op.infer([](Inference& c) {
    require_tensor_list(c, 0);
    c.output(c.dtype(0), with_leading(kAny, c.shape(0)));
  });
  op.gradient(list_stack_gradient);
  op.run([](KernelContext& c) {
    const List& list = list_input(c, 0);
    std::vector<std::int64_t> all(static_cast<std::size_t>(list.length()));
    std::iota(all.begin(), all.end(), 0);
    Shape element = shape_of_all(list, all);
    c.set(0, joined_rows(c, list, element.with_inserted(0, list.length()), [&](Rows& rows) {
            stack_rows(rows, list, list.length(), element.elements());
          }));
  });
}

TROUPE_OP(ListStackLike) {
  op.doc(
      "The elements of the list along the leading axis of a tensor like the second input; zeros "
      "where there are none.");
  op.inputs(1, 2);
  op.shape_only({1});
  op.takes_lists();
  op.takes_strings();
  spec_attrs(op);
  op.infer([](Inference& c) {
    require_tensor_list(c, 0);
    c.output(inferred_like(c, 1));
  });
  op.gradient(list_stack_gradient);
  op.run([](KernelContext& c, const Attrs& attrs) {
    Shape shape = spec_like(c, attrs, 1).shape;
    const List& list = list_input(c, 0);
    auto write = [&](Rows& rows) { stack_rows(rows, list, shape[0], shape.without(0).elements()); };
    if (list.length() == shape[0]) return c.set(0, joined_rows(c, list, shape, write));
    Rows rows(c, list.dtype(), shape);
    write(rows);
    c.set(0, rows.finish());
  });
}

}  // namespace troupe
