#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// The number of x's elements, as an i64 scalar.
TROUPE_DSL(Expr size_of(Operand x))
Expr size_of(Operand x) { return bind1("SizeOf", {x}); }

TROUPE_OP(SizeOf) {
  op.doc("The number of elements of the input, an i64 scalar on the host.");
  op.inputs(1);
  op.takes_strings();
  op.shape_only({0});
  op.not_differentiable();
  op.infer([](Inference& c) { c.output(DType::i64, Shape{}); });
  op.run([](KernelContext& c) { c.set(0, Tensor::scalar(c.input(0).elements())); });
}

}  // namespace troupe
