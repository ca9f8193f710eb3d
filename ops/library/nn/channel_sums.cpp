#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/channel_sums.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/reduction.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

#include <fmt/format.h>

namespace troupe {

// The sums that normalisation over all but the channels (or, by item, over the space of each item)
// needs: each of these ops reads x once. The rest of normalize.cpp is pointwise, and fuses with its
// neighbours. Results are f64, a few numbers a channel: the variance of f32 may exceed the range of
// f32.

namespace {

// [channels], or by item x's shape with a space of 1.
Shape shape_of_moments(const Shape& x, bool by_item) {
  if (!x.has_rank()) return by_item ? Shape::unknown() : Shape{kAny};
  const int last = x.rank() - 1;
  if (!by_item) return {x[last]};
  Shape s = x;
  for (int i = 1; i < last; ++i) s.set(i, 1);
  return s;
}

void require_channels_last(const Shape& x, bool by_item) {
  const int least = by_item ? 2 : 1;
  if (x.has_rank() && x.rank() < least)
    throw Error(Code::invalid_argument, "x must be [" + std::string(by_item ? "batch, " : "") +
                                            "..., channels], not " + x.text());
}

void require_numbers(const Inference& c) {
  c.require(c.dtype(0) == DType::f32 || c.dtype(0) == DType::f64,
            fmt::format("needs f32 or f64, not {}", name_of(c.dtype(0))));
}

ChannelSumsArgs blocks_of(const Tensor& x, bool by_item) {
  require_channels_last(x.shape(), by_item);
  ChannelSumsArgs a{
      x, {}, {}, {}, {}, by_item ? x.shape()[0] : 1, 1, x.shape()[x.shape().rank() - 1]};
  for (int i = by_item ? 1 : 0; i < x.shape().rank() - 1; ++i) a.rows *= x.shape()[i];
  return a;
}

// Computes the two results of x with the arguments `a`.
void run_channel_sums(KernelContext& c, ChannelSumsArgs& a, bool by_item) {
  const Shape made = shape_of_moments(a.x.shape, by_item);
  Tensor first = c.allocate(DType::f64, made), second = c.allocate(DType::f64, made);
  a.first = View(first);
  a.second = View(second);
  c.primitives().channel_sums(c.stream(), a);
  c.set(0, std::move(first));
  c.set(1, std::move(second));
}

}  // namespace

TROUPE_OP(ChannelMoments) {
  op.doc(
      "The mean and the variance, f64, of each channel, the last axis, over all other axes, or by "
      "item over all but the first.");
  op.inputs(1);
  op.attr<bool>("by_item", false);
  op.infer([](Inference& c) {
    const bool by_item = c.attrs().get<bool>("by_item");
    require_numbers(c);
    require_channels_last(c.shape(0), by_item);
    for (int i = 0; i < 2; ++i) c.output(DType::f64, shape_of_moments(c.shape(0), by_item));
  });
  op.gradient([](Gradient& g) {
    // The derivative of the mean is 1 / n, that of the variance 2 (x - mean) / n. (mean - x:
    // otherwise a pass would keep the forward pass's x - mean for it.)
    auto near = [&](const Expr& of_channels) { return cast(of_channels, g.x().dtype()); };
    auto of_mean = [&] { return divided_by_count(g, g.dy(0)); };
    if (!g.has_dy(1)) return g.set(0, broadcast_like(near(of_mean()), g.x()));
    // For x with a spread of 1e30 the variance's cotangent is about 1e-60: both factors are taken
    // in units of the spread, in which f32 can represent them. The rest restores the digits that
    // the mean lost.
    const Expr mean = g.y(0), spread = stop_gradient(maximum(sqrt(g.y(1)), 1e-37)),
               slope = divided_by_count(g, -2.0 * g.dy(1));
    const Expr of_variance = (near(mean) - g.x()) * near(1.0 / spread) * near(slope * spread);
    Expr rest;
    if (g.x().dtype() != DType::f64) rest = (mean - cast(near(mean), DType::f64)) * slope;
    if (g.has_dy(0)) rest = rest.is_empty() ? of_mean() : rest + of_mean();
    g.set(0, rest.is_empty() ? of_variance : of_variance + near(rest));
  });
  op.calls({Primitive::channel_sums});
  op.run([](KernelContext& c, const Attrs& attrs) {
    const bool by_item = attrs.get<bool>("by_item");
    ChannelSumsArgs a = blocks_of(c.input(0), by_item);
    run_channel_sums(c, a, by_item);
  });
}

TROUPE_OP(ChannelSums) {
  op.doc(
      "The sums of dy and of dy (x - mean) for each channel, f64, from dy, x and the means of "
      "channels, shaped as those of ChannelMoments.");
  op.inputs(3);
  op.attr<bool>("by_item", false);
  op.infer([](Inference& c) {
    const bool by_item = c.attrs().get<bool>("by_item");
    require_numbers(c);
    c.require_same_dtype(0, 1);
    c.require_same_dtype(0, 2);
    c.require(c.shape(0).is_compatible(c.shape(1)),
              "dy is of shape " + c.shape(1).text() + ", not " + c.shape(0).text());
    const Shape x = c.shape(0).merge(c.shape(1));
    require_channels_last(x, by_item);
    const Shape made = shape_of_moments(x, by_item);
    c.require(made.is_compatible(c.shape(2)),
              "the mean is of shape " + c.shape(2).text() + ", not " + made.text());
    for (int i = 0; i < 2; ++i) c.output(DType::f64, made.merge(c.shape(2)));
  });
  op.gradient([](Gradient& g) {
    auto near = [&](const Expr& of_channels) { return cast(of_channels, g.x(1).dtype()); };
    if (g.needs(0)) g.set(0, (g.x(1) - g.x(2)) * near(g.dy(1)) + near(g.dy(0)));
    if (g.needs(1)) g.set(1, g.x(0) * near(g.dy(1)));
    if (g.needs(2)) g.set(2, near(-(g.y(0) * g.dy(1))));
  });
  op.calls({Primitive::channel_sums});
  op.run([](KernelContext& c, const Attrs& attrs) {
    const bool by_item = attrs.get<bool>("by_item");
    ChannelSumsArgs a = blocks_of(c.input(1), by_item);
    const Shape made = shape_of_moments(a.x.shape, by_item);
    if (c.input(0).shape() != a.x.shape)
      throw Error(Code::invalid_argument,
                  "dy is of shape " + c.input(0).shape().text() + ", not " + a.x.shape.text());
    if (c.input(2).shape() != made)
      throw Error(Code::invalid_argument,
                  "the mean is of shape " + c.input(2).shape().text() + ", not " + made.text());
    a.dy = c.input(0);
    a.mean = c.input(2);
    run_channel_sums(c, a, by_item);
  });
}

}  // namespace troupe
