#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// The extents of x, as i64.
TROUPE_DSL(Expr shape_of(Operand x))
Expr shape_of(Operand x) { return bind1("ShapeOf", {x}); }

TROUPE_OP(ShapeOf) {
  op.doc("The extents of the input as an i64 vector, on the host.");
  op.inputs(1);
  op.takes_strings();
  op.shape_only({0});
  op.not_differentiable();
  op.infer([](Inference& c) {
    c.output(DType::i64, Shape{c.shape(0).has_rank() ? c.shape(0).rank() : kAny});
  });
  op.run([](KernelContext& c) {
    auto dims = c.input(0).shape().dims();
    c.set(0, Tensor::of<std::int64_t>(dims, Shape{static_cast<std::int64_t>(dims.size())}));
  });
}

}  // namespace troupe
