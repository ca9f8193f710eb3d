#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// exp(x) normalised to sum 1 along `axis`.
TROUPE_DSL(Expr softmax(Operand x, std::int64_t axis = -1))
/// The logarithm of softmax along `axis`, without overflow.
TROUPE_DSL(Expr log_softmax(Operand x, std::int64_t axis = -1))

namespace {

// The ops go along the last axis.
Expr along(const char* function, const char* op, const Operand& x, std::int64_t axis) {
  if (axis == -1) return bind1(op, {x});
  Composite c(function, {x});
  const int at = c.axis(0, axis);
  return exchanged_with_last(bind1(op, {exchanged_with_last(c[0], at)}), at);
}

template <bool is_log>
void define(OpBuilder& op) {
  op.inputs(1);
  op.infer([](Inference& c) {
    c.require_floating(0);
    c.require(!c.shape(0).has_rank() || c.shape(0).rank() >= 1, "needs at least one axis");
    c.output(c.dtype(0), c.shape(0));
  });
  op.calls({Primitive::softmax});
  op.run([](KernelContext& c) {
    ConstView in(c.input(0));
    Tensor out = c.allocate(in.dtype, in.shape);
    c.primitives().softmax(c.stream(), in, View(out), is_log);
    c.set(0, std::move(out));
  });
}

}  // namespace

Expr softmax(Operand x, std::int64_t axis) { return along("softmax", "Softmax", x, axis); }
Expr log_softmax(Operand x, std::int64_t axis) {
  return along("log_softmax", "LogSoftmax", x, axis);
}

TROUPE_OP(Softmax) {
  op.doc("exp(x) normalised to sum 1 along the last axis.");
  define<false>(op);
  op.gradient([](Gradient& g) { g.set(0, (g.dy() - sum(g.dy() * g.y(), {-1}, true)) * g.y()); });
}

TROUPE_OP(LogSoftmax) {
  op.doc("The logarithm of softmax along the last axis, without overflow.");
  define<true>(op);
  op.gradient([](Gradient& g) {
    // For an element near 1, only the other cotangents and its distance to 1 count.
    const Expr y = widened_half(g.y()), dy = widened_half(g.dy()), all = sum(dy, {-1}, true);
    g.set(0, cast(where(y > -0.5, (dy - all) - expm1(y) * all, dy - exp(y) * all), g.x().dtype()));
  });
}

}  // namespace troupe
