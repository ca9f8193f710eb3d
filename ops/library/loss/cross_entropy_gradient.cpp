#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

TROUPE_OP(CrossEntropyGradient) {
  op.doc("(softmax(logits) - one_hot(labels)) * dy, row by row: the gradient of CrossEntropy.");
  op.inputs(3);
  op.infer([](Inference& c) {
    c.require(is_floating(c.dtype(0)),
              "logits must be floating, not " + std::string(name_of(c.dtype(0))));
    c.require_index(1, "labels");
    c.require_same_dtype(0, 2);
    const Shape& logits = c.shape(0);
    c.require(!logits.has_rank() || logits.rank() >= 1, "a scalar has no classes");
    const Shape rows = logits.has_rank() ? logits.without(logits.rank() - 1) : Shape::unknown();
    for (int i : {1, 2})
      c.require(rows.is_compatible(c.shape(i)),
                "logits " + c.shape(0).text() + " and " + c.shape(i).text() + " differ in rows");
    c.output(c.dtype(0), c.shape(0));
  });
  op.gradient([](Gradient& g) {
    // With p = softmax(x) and G the cotangent: d/dx = scale * p * (G - sum(G * p)); d/dscale =
    // sum(G * (p - one_hot)).
    Expr p = softmax(g.x(0)), scale = expand_dims(g.x(2), -1), cotangent = g.dy();
    if (g.needs(0)) g.set(0, scale * p * (cotangent - sum(cotangent * p, {-1}, true)));
    if (g.needs(2))
      g.set(2, sum(cotangent * bind1("CrossEntropyGradient", {g.x(0), g.x(1), ones_like(g.x(2))}),
                   {-1}));
  });
  op.calls({Primitive::cross_entropy_gradient});
  op.run([](KernelContext& c) {
    ConstView logits(c.input(0)), labels(c.input(1)), scale(c.input(2));
    const int last = logits.shape.rank() - 1;
    if (last < 0 || labels.shape != logits.shape.without(last) || scale.shape != labels.shape)
      throw Error(Code::invalid_argument, "logits " + logits.shape.text() + ", labels " +
                                              labels.shape.text() + " and scale " +
                                              scale.shape.text() + " differ in rows");
    Tensor out = c.allocate(logits.dtype, logits.shape);
    logits.shape = Shape{labels.elements(), logits.shape[last]};
    c.primitives().cross_entropy_gradient(c.stream(), logits, labels, scale, View(out));
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
