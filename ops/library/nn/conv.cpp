#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/convolution.hpp>

namespace troupe {

/// Cross-correlation, 1-D to 3-D (window.hpp, Note [channels last]). x: [batch, space...,
/// channels]; filter: [window..., channels / groups, filters]; result: [batch, positions...,
/// filters]. With groups, the i-th part of the filters reads the i-th part of the channels; groups
/// = channels is a depthwise convolution. f16 and bf16 add in f32; integers wrap.
TROUPE_DSL(Expr conv(Operand x, Operand filter, const WindowOptions& window = {},
                     std::int64_t groups = 1))
Expr conv(Operand x, Operand filter, const WindowOptions& window, std::int64_t groups) {
  return bind_convolution("Conv", x, filter, window, groups);
}

// The three are linear in each operand and each other's gradients: with <u, v> the sum of products,
// <Conv(x, w), dy> = <x, ConvInputGradient(dy, w)> = <w, ConvFilterGradient(x, dy)>.

TROUPE_OP(Conv) {
  op.doc(
      "Convolution of [batch, space..., channels] with [window..., channels / groups, filters], "
      "1-D to 3-D.");
  op.inputs(2);
  convolution_attrs(op);
  op.infer([](Inference& c) {
    require_convolution(c, 0, 1);
    const Shape &x = c.shape(0), &w = c.shape(1);
    if (!x.has_rank() && !w.has_rank()) return c.output(c.dtype(0), Shape::unknown());
    const std::int64_t groups = c.attrs().get<std::int64_t>("groups");
    if (x.has_rank() && w.has_rank()) {
      const std::int64_t channels = x[x.rank() - 1], seen = w[w.rank() - 2];
      c.require(
          channels < 0 || seen < 0 || channels == seen * groups,
          fmt::format("the filter sees {} channels in each of {} groups, but x has {}: {} and {}",
                      seen, groups, channels, x.text(), w.text()));
    }
    c.output(c.dtype(0), with_space(x.has_rank() ? x[0] : kAny,
                                    x.has_rank() && w.has_rank()
                                        ? positions(space_of(x), window_of(w), c.attrs())
                                        : any_space(x.has_rank() ? x : w),
                                    w.has_rank() ? w[w.rank() - 1] : kAny));
  });
  op.gradient([](Gradient& g) {
    if (g.needs(0)) g.set(0, bind1("ConvInputGradient", {g.dy(), g.x(1), g.x(0)}, g.attrs()));
    if (g.needs(1)) g.set(1, bind1("ConvFilterGradient", {g.x(0), g.dy(), g.x(1)}, g.attrs()));
  });
  op.calls({Primitive::convolve});
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return convolution_kernel(Convolve::output, s, [](KernelContext& c, const Attrs& attrs) {
      const Shape &x = c.input(0).shape(), &w = c.input(1).shape();
      return ConvolutionShapes{
          x, w, with_space(x[0], positions(space_of(x), window_of(w), attrs), w[w.rank() - 1])};
    });
  });
}

TROUPE_OP(ConvInputGradient) {
  op.doc(
      "The gradient of Conv with respect to its input: of dy and the filter, in the shape of the "
      "third input.");
  op.inputs(3);
  op.shape_only({2});
  convolution_attrs(op);
  op.infer([](Inference& c) {
    require_convolution(c, 0, 1);
    c.output(c.dtype(0), c.shape(2));
  });
  op.gradient([](Gradient& g) {
    if (g.needs(0)) g.set(0, bind1("Conv", {g.dy(), g.x(1)}, g.attrs()));
    if (g.needs(1)) g.set(1, bind1("ConvFilterGradient", {g.dy(), g.x(0), g.x(1)}, g.attrs()));
  });
  op.calls({Primitive::convolve});
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return convolution_kernel(Convolve::input, s, [](KernelContext& c, const Attrs&) {
      return ConvolutionShapes{c.input(2).shape(), c.input(1).shape(), c.input(0).shape()};
    });
  });
}

TROUPE_OP(ConvFilterGradient) {
  op.doc(
      "The gradient of Conv with respect to its filter: of the input and dy, in the shape of the "
      "third input.");
  op.inputs(3);
  op.shape_only({2});
  convolution_attrs(op);
  op.infer([](Inference& c) {
    require_convolution(c, 0, 2);
    c.require_same_dtype(0, 1);
    c.output(c.dtype(0), c.shape(2));
  });
  op.gradient([](Gradient& g) {
    if (g.needs(0)) g.set(0, bind1("ConvInputGradient", {g.x(1), g.dy(), g.x(0)}, g.attrs()));
    if (g.needs(1)) g.set(1, bind1("Conv", {g.x(0), g.dy()}, g.attrs()));
  });
  op.calls({Primitive::convolve});
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return convolution_kernel(Convolve::filter, s, [](KernelContext& c, const Attrs&) {
      return ConvolutionShapes{c.input(0).shape(), c.input(2).shape(), c.input(1).shape()};
    });
  });
}

}  // namespace troupe
