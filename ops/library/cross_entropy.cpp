#include <troupe/functions.hpp>
#include <troupe/ops/gradient.hpp>
#include <troupe/ops/op.hpp>

namespace troupe {

/// -log softmax(logits)[label] of every row. logits: [n, classes]; labels: [n], i32 or i64 in
/// [0, classes); result: [n].
TROUPE_DSL(Expr cross_entropy(Operand logits, Operand labels))
Expr cross_entropy(Operand logits, Operand labels) { return bind1("CrossEntropy", {logits, labels}); }

TROUPE_OP(CrossEntropy) {
  op.doc("Negative log-likelihood of each row's label under the softmax of its logits.");
  op.inputs(2);
  op.infer([](Inference& c) {
    c.require(is_floating(c.dtype(0)), "logits must be floating, not " + std::string(name_of(c.dtype(0))));
    c.require_rank(0, 2, "logits");
    c.require_rank(1, 1, "labels");
    c.require_index(1, "labels");
    Shape rows{c.shape(0).has_rank() ? c.shape(0)[0] : kAny};
    c.output(c.dtype(0), c.shape(1).has_rank() ? rows.merge(c.shape(1)) : rows);
  });
  op.gradient([](Gradient& g) { g.set(0, bind1("CrossEntropyGradient", {g.x(0), g.x(1), g.dy()})); });
  op.run([](KernelContext& c) {
    ConstView logits(c.input(0)), labels(c.input(1));
    if (logits.shape.rank() != 2 || labels.shape.rank() != 1 || logits.shape[0] != labels.shape[0])
      throw Error(Code::invalid_argument, "logits " + logits.shape.text() + " and labels " + labels.shape.text() + " differ in rows");
    Tensor out = c.allocate(logits.dtype, labels.shape);
    c.primitives().cross_entropy(c.stream(), logits, labels, View(out));
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
