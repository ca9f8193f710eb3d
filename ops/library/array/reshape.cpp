#include <troupe/functions.hpp>
#include <troupe/ops/families/extents.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// The elements of x under another shape. An extent may be kAny and follows from the others; of
/// several, all but the last are x's own at the same places: {kAny, kAny, 8, 64} makes [batch,
/// time, 8, 64] of [batch, time, 512].
/// Extents may be expressions: `reshape(x, {n, kAny})`.
TROUPE_DSL(Expr reshape(Operand x, const detail::Extents& shape))
Expr reshape(Operand x, const detail::Extents& shape) {
  if (shape.is_known()) return bind1("Reshape", {x}, Attrs{{"shape", shape.known()}});
  const Composite c("reshape", {x});
  return bind1("ReshapeTo", {c[0], extents_vector(c, shape)}, extents_attrs(c, shape));
}

TROUPE_OP(Reshape) {
  op.doc("The elements of the input, in the same order, under another shape.");
  op.inputs(1);
  op.takes_strings();
  op.attr<Shape>("shape");
  op.infer([](Inference& c) {
    c.output(c.dtype(0), reshaped(c.attrs().get<Shape>("shape"), c.shape(0)));
  });
  op.gradient([](Gradient& g) { g.set(0, reshape_like(g.dy(), g.x())); });
  op.run([](KernelContext& c, const Attrs& attrs) {
    Tensor x = c.take(0);
    c.set(0, x.reshaped(reshaped(attrs.get<Shape>("shape"), x.shape())));
  });
}

}  // namespace troupe
