#include <troupe/controlflow/list_ops.hpp>

#include <fmt/format.h>

namespace troupe {

namespace {
Expr split_to(const Operand& x, const Operand& lengths, const Shape& element) {
  return bind1("ListSplit", {x, lengths.as_written()}, Attrs{{"shape", element}});
}
}  // namespace

Expr list_split(Operand x, Operand lengths) {
  Shape pieces = x.is_expr() ? x.expr().shape() : x.literal().shape();
  if (pieces.has_rank() && pieces.rank() > 0) pieces.set(0, kAny);
  return split_to(x, lengths, pieces);
}

Expr split_as(const Expr& list, const Expr& x, const Expr& lengths) {
  return split_to(x, lengths, list.shape());
}

TROUPE_OP(ListSplit) {
  op.doc("The first input cut along axis 0 into pieces of the extents in the second, as a list.");
  op.inputs(2);
  op.takes_strings();
  op.attr<Shape>("shape");  // the list's elements': no more than is known when the graph is built
  op.infer([](Inference& c) {
    require_integers(c, 1, 1, "lengths");
    c.require(!c.shape(0).has_rank() || c.shape(0).rank() > 0, "a scalar cannot be split");
    ValueSpec element{c.dtype(0), c.attrs().get<Shape>("shape")};
    Shape piece = c.shape(0);
    if (piece.has_rank()) piece.set(0, kAny);
    c.require(piece.is_compatible(element.shape),
              "pieces of " + c.shape(0).text() + " do not have shape " + element.shape.text());
    c.output(element.list_of());
  });
  op.gradient([](Gradient& g) {
    std::vector<Operand> operands{g.dy(), g.x(1)};
    Attrs attrs = attrs_like(g.x(0), operands);
    g.set(0, bind1("ListConcatLike", operands, attrs, operands[0].site()));
  });
  op.kernel([](const KernelSetup& s) {
    return with_host_inputs({1}, [element = s.attrs.get<Shape>("shape")](KernelContext& c) {
      const Tensor& x = c.input(0);
      std::vector<std::int64_t> lengths = integers_of(c.input(1));
      std::int64_t total = 0;
      for (std::int64_t n : lengths) {
        if (n < 0)
          throw Error(Code::invalid_argument, fmt::format("a piece cannot have {} rows", n));
        total += n;
      }
      if (total != x.shape()[0])
        throw Error(Code::invalid_argument,
                    fmt::format("lengths sum to {}, but axis 0 of {} has {}", total,
                                x.shape().text(), x.shape()[0]));
      List list(x.dtype(), element);
      std::int64_t begin = 0;
      for (std::int64_t n : lengths) {
        list.push(x.rows(begin, begin + n));
        begin += n;
      }
      c.set(0, std::move(list));
    });
  });
}

}  // namespace troupe
