#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/convolution.hpp>
#include <troupe/ops/graph/composite.hpp>

#include <algorithm>

namespace troupe {

/// The transpose of `conv` with the same window: takes [batch, positions..., filters] to [batch,
/// space..., channels] and spreads each element over a window. filter: that of the convolution,
/// [window..., channels / groups, filters]. An extent of the result is (n - 1) * stride + (window -
/// 1) * dilation + 1 less the padding, and `more` behind that; with Padding::same() n * stride.
/// If strides leave several extents that the convolution takes to n, `more`, one number for each
/// spatial axis, selects one.
TROUPE_DSL(Expr conv_transpose(Operand x, Operand filter, const WindowOptions& window = {},
                               std::int64_t groups = 1, std::vector<std::int64_t> more = {}))
Expr conv_transpose(Operand x, Operand filter, const WindowOptions& window, std::int64_t groups,
                    std::vector<std::int64_t> more) {
  if (more.empty()) return bind_convolution("ConvTranspose", x, filter, window, groups);
  Composite c("conv_transpose", {x, filter});
  const auto axes = static_cast<std::size_t>(std::max(0, c.rank(0) - 2));
  c.require(more.size() == axes,
            fmt::format("more has {} numbers for {} spatial axes", more.size(), axes));
  c.require(
      window.padding.kind != "same",
      "padding 'same' fixes the output size, n * stride; leave `more` out, or give the padding");
  c.require(
      window.padding.after.empty() || window.padding.after.size() == axes,
      fmt::format("after has {} numbers for {} spatial axes", window.padding.after.size(), axes));
  // The padding behind shrinks by `more`; no window reaches the elements beyond it.
  WindowOptions kept = window;
  std::vector<std::int64_t> none(axes + 2, 0), beyond = none;
  for (std::size_t i = 0; i < axes; ++i) {
    const std::int64_t most = std::max(window.strides.size() == axes ? window.strides[i] : 1,
                                       window.dilation.size() == axes ? window.dilation[i] : 1) -
                              1;
    c.require(
        more[i] >= 0 && more[i] <= most,
        fmt::format(
            "more of spatial axis {} must be in [0, {}], below the stride or the dilation, not {}",
            i, most, more[i]));
    const std::int64_t off =
        kept.padding.after.empty()
            ? 0
            : std::min(std::max<std::int64_t>(0, kept.padding.after[i]), more[i]);
    if (off > 0) kept.padding.after[i] -= off;
    beyond[i + 1] = more[i] - off;
  }
  return pad(bind_convolution("ConvTranspose", c[0], c[1], kept, groups), none, beyond);
}

namespace {

Shape transposed_shape(const Shape& x, const Shape& w, const Attrs& attrs) {
  const std::int64_t seen = w.has_rank() ? w[w.rank() - 2] : kAny;
  return with_space(x.has_rank() ? x[0] : kAny,
                    x.has_rank() && w.has_rank() ? covered(space_of(x), window_of(w), attrs)
                                                 : any_space(x.has_rank() ? x : w),
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
      c.require(
          own < 0 || filters < 0 || own == filters,
          fmt::format("x has {} channels, but the filter {} gives {}", own, w.text(), filters));
    }
    c.output(c.dtype(0), transposed_shape(x, w, c.attrs()));
  });
  op.gradient([](Gradient& g) {
    if (g.needs(0)) g.set(0, bind1("Conv", {g.dy(), g.x(1)}, g.attrs()));
    if (g.needs(1)) g.set(1, bind1("ConvFilterGradient", {g.dy(), g.x(0), g.x(1)}, g.attrs()));
  });
  op.calls({Primitive::convolve});
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return convolution_kernel(Convolve::input, s, [](KernelContext& c, const Attrs& attrs) {
      const Shape &x = c.input(0).shape(), &w = c.input(1).shape();
      return ConvolutionShapes{transposed_shape(x, w, attrs), w, x};
    });
  });
}

}  // namespace troupe
