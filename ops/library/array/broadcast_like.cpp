#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

#include <vector>

#include <fmt/format.h>

namespace troupe {

/// x repeated to the shape of `like`.
TROUPE_DSL(Expr broadcast_like(Operand x, Operand like))
Expr broadcast_like(Operand x, Operand like) { return bind1("BroadcastLike", {x, like}); }
/// x repeated to `shape`, in which kAny is x's own extent.
TROUPE_DSL(Expr broadcast_to(Operand x, const Shape& shape))
Expr broadcast_to(Operand x, const Shape& shape) {
  Composite c("broadcast_to", {x});
  c.require_numbers(0);
  c.require(shape.has_rank() && shape.rank() >= c.rank(0),
            fmt::format("shape {} is no part of {}", c[0].shape().text(), shape.text()));
  c.require_fits(shape);
  Shape known = shape;
  std::vector<std::int64_t> said;  // axes of x
  for (int i = 0; i < shape.rank(); ++i) {
    const int axis = i - (shape.rank() - c.rank(0));
    const std::int64_t own = axis < 0 ? 1 : c[0].shape()[axis];
    c.require(axis >= 0 || shape[i] >= 0,
              fmt::format("shape {} leaves axis {} open, which {} does not have", shape.text(), i,
                          c[0].shape().text()));
    c.require(shape[i] < 0 || own < 0 || own == 1 || own == shape[i],
              fmt::format("shape {} is no part of {}", c[0].shape().text(), shape.text()));
    if (shape[i] < 0) known.set(i, 1);
    else if (axis >= 0) said.push_back(axis);
  }
  const Expr given = c.reader().zeros(DType::i8, known);
  if (known == shape) return broadcast_like(c[0], given);
  Expr own = zeros_like(cast(stop_gradient(c[0]), DType::i8));
  if (!said.empty()) own = sum(own, said, true);
  return broadcast_like(c[0], given + own);
}

TROUPE_OP(BroadcastLike) {
  op.doc("The first input broadcast to the shape of the second.");
  op.inputs(2);
  op.shape_only({1});
  op.infer([](Inference& c) {
    Shape both = broadcast(c.shape(0), c.shape(1));
    c.require(both.is_compatible(c.shape(1)),
              "shape " + c.shape(0).text() + " is no part of " + c.shape(1).text());
    c.output(c.dtype(0), c.shape(1));
  });
  op.gradient([](Gradient& g) { g.set(0, sum_to(g.dy(), g.x(0))); });
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    Recorder r(1);
    r.finish(r.input(0));
    return make_kernel([copy = r.typed({s.input_types.data(), 1})](KernelContext& c) {
      const Shape shape = c.input(1).shape();
      if (c.input(0).shape() == shape) {
        c.set(0, c.take(0));
        return;
      }
      if (broadcast(c.input(0).shape(), shape) != shape)
        throw Error(Code::invalid_argument,
                    "shape " + c.input(0).shape().text() + " is no part of " + shape.text());
      Tensor out = c.allocate(c.input(0).dtype(), shape);
      ConstView in(c.input(0));
      View to(out);
      c.primitives().pointwise(c.stream(), copy, {&in, 1}, {&to, 1});
      c.set(0, std::move(out));
    });
  });
}

}  // namespace troupe
