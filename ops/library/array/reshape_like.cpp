#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x under the shape of `like`, which has as many elements.
TROUPE_DSL(Expr reshape_like(Operand x, Operand like))
Expr reshape_like(Operand x, Operand like) {
  if (x.is_expr() && like.is_expr() && x.expr().shape().is_known() &&
      x.expr().shape() == like.expr().shape())
    return x.expr();
  return bind1("ReshapeLike", {x, like});
}

TROUPE_OP(ReshapeLike) {
  op.doc("The first input's elements under the shape of the second.");
  op.inputs(2);
  op.shape_only({1});
  op.infer([](Inference& c) {
    std::int64_t from = c.shape(0).elements(), to = c.shape(1).elements();
    c.require(from < 0 || to < 0 || from == to,
              "shapes " + c.shape(0).text() + " and " + c.shape(1).text() + " differ in elements");
    c.output(c.dtype(0), c.shape(1));
  });
  op.gradient([](Gradient& g) { g.set(0, reshape_like(g.dy(), g.x(0))); });
  op.run([](KernelContext& c) { c.set(0, c.input(0).reshaped(c.input(1).shape())); });
}

}  // namespace troupe
