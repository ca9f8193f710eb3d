#include <troupe/functions.hpp>
#include <troupe/ops/composite.hpp>
#include <troupe/ops/gradient.hpp>
#include <troupe/ops/op.hpp>

namespace troupe {

/// The logarithm of softmax along `axis`, without overflow.
TROUPE_DSL(Expr log_softmax(Operand x, std::int64_t axis = -1))
Expr log_softmax(Operand x, std::int64_t axis) {
  if (axis == -1) return bind1("LogSoftmax", {x});
  Composite c("log_softmax", {x});
  const int at = c.axis(0, axis);
  return exchanged_with_last(bind1("LogSoftmax", {exchanged_with_last(c[0], at)}), at);
}

TROUPE_OP(LogSoftmax) {
  op.doc("The logarithm of softmax along the last axis, without overflow.");
  op.inputs(1);
  op.infer([](Inference& c) {
    c.require_floating(0);
    c.require(!c.shape(0).has_rank() || c.shape(0).rank() >= 1, "needs at least one axis");
    c.output(c.dtype(0), c.shape(0));
  });
  op.gradient([](Gradient& g) { g.set(0, g.dy() - exp(g.y()) * sum(g.dy(), {-1}, true)); });
  op.run([](KernelContext& c) {
    ConstView in(c.input(0));
    Tensor out = c.allocate(in.dtype, in.shape);
    c.primitives().softmax(c.stream(), in, View(out), true);
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
