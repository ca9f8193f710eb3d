#include <troupe/functions.hpp>
#include <troupe/ops/families/extents.hpp>
#include <troupe/ops/families/host_inputs.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

#include <vector>

#include <fmt/format.h>

namespace troupe {

/// x repeated to the shape of `like`.
TROUPE_DSL(Expr broadcast_like(Operand x, Operand like))
Expr broadcast_like(Operand x, Operand like) { return bind1("BroadcastLike", {x, like}); }
/// x repeated to `shape`, in which kAny is x's own extent. Extents may be expressions:
/// `broadcast_to(x, {n, kAny})`, `broadcast_to(x, shape_of(y))`.
TROUPE_DSL(Expr broadcast_to(Operand x, const detail::Extents& shape))

namespace {
Expr broadcast_to_known(const Composite& c, const Shape& shape) {
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

// x of `shape` with the open axes as they are in x; throws if x is no part of it.
Shape broadcast_shape(const Shape& x, Shape shape, const std::vector<std::int64_t>& open) {
  const auto fail = [&] {
    throw Error(Code::invalid_argument,
                fmt::format("shape {} is no part of {}", x.text(), shape.text()));
  };
  if (!x.has_rank()) return shape;
  const int off = shape.rank() - x.rank();
  if (off < 0) fail();
  for (const std::int64_t axis : open) {
    if (axis < off)
      throw Error(Code::invalid_argument,
                  fmt::format("shape {} leaves axis {} open, which {} does not have", shape.text(),
                              axis, x.text()));
    shape.set(static_cast<int>(axis), x[static_cast<int>(axis) - off]);
  }
  for (int i = 0; i < x.rank(); ++i)
    if (x[i] >= 0 && x[i] != 1 && shape[i + off] >= 0 && shape[i + off] != x[i]) fail();
  return shape;
}

// A program that copies its input to where it is broadcast.
ScalarProgram repeated(const KernelSetup& s) {
  Recorder r(1);
  r.finish(r.input(0));
  return r.typed({s.input_types.data(), 1});
}

void repeat_to(KernelContext& c, const ScalarProgram& copy, const Shape& shape) {
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
}
}  // namespace

Expr broadcast_to(Operand x, const detail::Extents& shape) {
  Composite c("broadcast_to", {x});
  c.require_numbers(0);
  if (shape.is_known()) return broadcast_to_known(c, shape.known());
  return bind1("BroadcastTo", {c[0], extents_vector(c, shape)}, extents_attrs(c, shape));
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
    return make_kernel(
        [copy = repeated(s)](KernelContext& c) { repeat_to(c, copy, c.input(1).shape()); });
  });
}

TROUPE_OP(BroadcastTo) {
  op.doc("The first input broadcast to the extents in the second; kAny where they are its own.");
  op.inputs(2);
  op.attr<Shape>("shape");
  op.attr<std::vector<std::int64_t>>("open", {});
  op.infer([](Inference& c) {
    c.require(c.dtype(0) != DType::string, "strings are not computed with");
    c.require_index(1, "extents");
    c.require_rank(1, 1, "the vector of extents");
    const Shape& known = c.attrs().get<Shape>("shape");
    c.require(!c.shape(1).has_rank() || c.shape(1)[0] < 0 || c.shape(1)[0] == known.rank(), [&] {
      return fmt::format("there are {} extents for shape {}", c.shape(1)[0], known.text());
    });
    c.output(c.dtype(0),
             broadcast_shape(c.shape(0), known, c.attrs().get<std::vector<std::int64_t>>("open")));
  });
  op.gradient([](Gradient& g) { g.set(0, sum_to(g.dy(), g.x(0))); });
  op.kernel([](const KernelSetup& s) {
    return with_host_inputs({1}, [copy = repeated(s), attrs = s.attrs](KernelContext& c) {
      const Shape given = extents_given(attrs, integers_of(c.input(1)));
      repeat_to(
          c, copy,
          broadcast_shape(c.input(0).shape(), given, attrs.get<std::vector<std::int64_t>>("open")));
    });
  });
}

}  // namespace troupe
