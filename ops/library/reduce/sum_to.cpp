#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x summed over the axes along which `like` was broadcast to it: the gradient of broadcasting.
TROUPE_DSL(Expr sum_to(Operand x, Operand like))
Expr sum_to(Operand x, Operand like) {
  if (x.is_expr() && like.is_expr() && x.expr().shape().is_known() &&
      x.expr().shape() == like.expr().shape())
    return x.expr();
  return bind1("SumTo", {x, like});
}

TROUPE_OP(SumTo) {
  op.doc("Sums the first input to the shape of the second, the reverse of broadcasting.");
  op.inputs(2);
  op.shape_only({1});
  op.infer([](Inference& c) {
    c.require(c.dtype(0) != DType::boolean, "bool has no sums; cast it");
    const Shape both = broadcast(c.shape(0), c.shape(1));
    c.require(both.is_compatible(c.shape(0)), [&] {
      return "shape " + c.shape(1).text() + " cannot be broadcast to " + c.shape(0).text();
    });
    c.output(c.dtype(0), c.shape(1));
  });
  op.gradient([](Gradient& g) { g.set(0, broadcast_like(g.dy(), g.x(0))); });
  op.run([](KernelContext& c) {
    const Shape from = c.input(0).shape(), to = c.input(1).shape();
    if (from == to) {
      c.set(0, c.take(0));
      return;
    }
    if (broadcast(from, to) != from)
      throw Error(Code::invalid_argument,
                  "shape " + to.text() + " cannot be broadcast to " + from.text());
    std::uint32_t axes = 0;
    int lead = from.rank() - to.rank();
    for (int i = 0; i < from.rank(); ++i)
      if (i < lead || (to[i - lead] == 1 && from[i] != 1)) axes |= 1u << i;
    Tensor out = c.allocate(c.input(0).dtype(), to);
    c.primitives().reduce(c.stream(), Reduction::sum, c.input(0), View(out), axes);
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
