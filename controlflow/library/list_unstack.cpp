#include <troupe/controlflow/list_ops.hpp>

namespace troupe {

namespace {
Expr unstacked(const Operand& x, const Shape& element) {
  return bind1("ListUnstack", {x}, Attrs{{"shape", element}});
}
}  // namespace

Expr list_unstack(Operand x) {
  Shape s = x.is_expr() ? x.expr().shape() : x.literal().shape();
  return unstacked(x, s.has_rank() && s.rank() > 0 ? s.without(0) : Shape::unknown());
}

Expr unstacked_as(const Expr& list, const Expr& x) { return unstacked(x, list.shape()); }

TROUPE_OP(ListUnstack) {
  op.doc("The slices of the input along axis 0, as a list.");
  op.inputs(1);
  op.takes_strings();
  op.attr<Shape>("shape");  // the list's elements': no more than is known when the graph is built
  op.infer([](Inference& c) {
    c.require(!c.shape(0).has_rank() || c.shape(0).rank() > 0, "a scalar has no slices");
    ValueSpec element{c.dtype(0), c.attrs().get<Shape>("shape")};
    if (c.shape(0).has_rank())
      c.require(c.shape(0).without(0).is_compatible(element.shape),
                "slices of " + c.shape(0).text() + " do not have shape " + element.shape.text());
    c.output(element.list_of());
  });
  op.gradient([](Gradient& g) {
    std::vector<Operand> operands{g.dy()};
    Attrs attrs = attrs_like(g.x(0), operands);
    g.set(0, bind1("ListStackLike", operands, attrs, operands[0].site()));
  });
  op.run([](KernelContext& c, const Attrs& attrs) {
    const Tensor& x = c.input(0);
    List list(x.dtype(), attrs.get<Shape>("shape"));
    for (std::int64_t i = 0; i < x.shape()[0]; ++i) list.push(slice_of(x, i));
    c.set(0, std::move(list));
  });
}

}  // namespace troupe
