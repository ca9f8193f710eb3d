#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// -log softmax(logits)[label] of every row. logits: [..., classes]; labels: [...], i32 or i64 in
/// [0, classes); result: [...].
TROUPE_DSL(Expr cross_entropy(Operand logits, Operand labels))
Expr cross_entropy(Operand logits, Operand labels) {
  return bind1("CrossEntropy", {logits, labels});
}

TROUPE_OP(CrossEntropy) {
  op.doc("Negative log-likelihood of each row's label under the softmax of its logits.");
  op.inputs(2);
  op.infer([](Inference& c) {
    c.require(is_floating(c.dtype(0)),
              "logits must be floating, not " + std::string(name_of(c.dtype(0))));
    c.require_index(1, "labels");
    const Shape &logits = c.shape(0), &labels = c.shape(1);
    c.require(!logits.has_rank() || logits.rank() >= 1, "a scalar has no classes");
    const Shape rows = logits.has_rank() ? logits.without(logits.rank() - 1) : Shape::unknown();
    c.require(rows.is_compatible(labels),
              "logits " + logits.text() + " and labels " + labels.text() + " differ in rows");
    c.output(c.dtype(0), rows.merge(labels));
  });
  op.gradient([](Gradient& g) {
    g.set(0, bind1("CrossEntropyGradient", {g.x(0), g.x(1), g.dy()}));
  });
  op.calls({Primitive::cross_entropy});
  op.run([](KernelContext& c) {
    ConstView logits(c.input(0)), labels(c.input(1));
    const int last = logits.shape.rank() - 1;
    if (last < 0 || logits.shape.without(last) != labels.shape)
      throw Error(Code::invalid_argument, "logits " + logits.shape.text() + " and labels " +
                                              labels.shape.text() + " differ in rows");
    Tensor out = c.allocate(logits.dtype, labels.shape);
    logits.shape = Shape{labels.elements(), logits.shape[last]};
    c.primitives().cross_entropy(c.stream(), logits, labels, View(out));
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
