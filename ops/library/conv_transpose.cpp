#include <troupe/functions.hpp>
#include <troupe/ops/convolution.hpp>

namespace troupe {

/// The transpose of `conv` with the same window: takes [batch, positions..., filters] to [batch, space..., channels] and spreads each
/// element over a window. filter: that of the convolution, [window..., channels / groups, filters]. An extent of the result is
/// (n - 1) * stride + (window - 1) * dilation + 1 less the padding; with Padding::same() n * stride.
TROUPE_DSL(Expr conv_transpose(Operand x, Operand filter, const Window& window = {}, std::int64_t groups = 1))
Expr conv_transpose(Operand x, Operand filter, const Window& window, std::int64_t groups) { return bind_convolution("ConvTranspose", x, filter, window, groups); }

namespace {

Shape transposed_shape(const Shape& x, const Shape& w, const Attrs& attrs) {
  const std::int64_t seen = w.has_rank() ? w[w.rank() - 2] : kAny;
  return with_space(x.has_rank() ? x[0] : kAny, x.has_rank() && w.has_rank() ? covered(space_of(x), window_of(w), attrs) : any_space(x.has_rank() ? x : w),
                    seen < 0 ? kAny : seen * attrs.get<std::int64_t>("groups"));
}

}  // namespace

TROUPE_OP(ConvTranspose) {
  op.doc("The transpose of Conv: [batch, positions..., filters] to [batch, space..., channels].");
  op.inputs(2);
  convolution_attrs(op);
  op.infer([](Inference& c) {
    require_convolution(c, 0, 1);
    const Shape &x = c.shape(0), &w = c.shape(1);
    if (!x.has_rank() && !w.has_rank()) return c.output(c.dtype(0), Shape::unknown());
    if (x.has_rank() && w.has_rank()) {
      const std::int64_t own = x[x.rank() - 1], filters = w[w.rank() - 1];
      c.require(own < 0 || filters < 0 || own == filters, fmt::format("x has {} channels, but the filter {} gives {}", own, w.text(), filters));
    }
    c.output(c.dtype(0), transposed_shape(x, w, c.attrs()));
  });
  op.gradient([](Gradient& g) {
    if (g.needs(0)) g.set(0, bind1("Conv", {g.dy(), g.x(1)}, g.attrs()));
    if (g.needs(1)) g.set(1, bind1("ConvFilterGradient", {g.dy(), g.x(0), g.x(1)}, g.attrs()));
  });
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return convolution_kernel(Convolve::input, s, [](KernelContext& c, const Attrs& attrs) {
      const Shape &x = c.input(0).shape(), &w = c.input(1).shape();
      return ConvolutionShapes{transposed_shape(x, w, attrs), w, x};
    });
  });
}

}  // namespace troupe
