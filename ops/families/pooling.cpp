#include <troupe/ops/families/pooling.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

using Integers = std::vector<std::int64_t>;

namespace detail {

void pooling_attrs(OpBuilder& op) {
  op.attr<Integers>("size");
  window_attrs(op);
}

Attrs attrs_of_pooling(Integers size, const WindowOptions& window) {
  Attrs attrs = attrs_of(window);
  attrs.set("size", std::move(size));
  return attrs;
}

}  // namespace detail

namespace {

Shape size_of_window(const Shape& x, const Attrs& attrs) {
  const Integers& size = attrs.get<Integers>("size");
  if (static_cast<int>(size.size()) != x.rank() - 2)
    throw Error(Code::invalid_argument, fmt::format("the window has {} numbers for {} spatial axes",
                                                    size.size(), x.rank() - 2));
  for (std::int64_t s : size) {
    if (s < 1)
      throw Error(Code::invalid_argument,
                  fmt::format("a window's extents are at least 1, not {}", s));
    if (s > std::int64_t{1} << 30)
      throw Error(Code::invalid_argument,
                  fmt::format("a window's extents are at most 2^30, not {}", s));
  }
  return Shape(size);
}

// Refuses padding that could fill a window: a window of padding alone has no largest element and
// no mean.
void check_padding(const Attrs& attrs) {
  const Integers& size = attrs.get<Integers>("size");
  for (const char* side : {"before", "after"}) {
    const Integers& padding = attrs.get<Integers>(side);
    const Integers& dilation = attrs.get<Integers>("dilation");
    for (std::size_t i = 0; i < padding.size() && i < size.size(); ++i)
      if (padding[i] > (size[i] - 1) * (i < dilation.size() ? dilation[i] : 1))
        throw Error(Code::invalid_argument,
                    fmt::format("padding {} of spatial axis {} could fill a window of {}",
                                padding[i], i, size[i]));
  }
}

// Refuses windows without elements: less padding is enough if a dilated window steps over all
// elements. Only windows that begin before the elements can do so, and the last one. Without
// dilation the windows after the first reach at least as far.
void require_elements(const Windows& windows) {
  const auto require_one = [](const WindowAxis& a, std::int64_t o) {
    if (a.first_tap(o) >= a.last_tap(o))
      throw Error(Code::invalid_argument,
                  fmt::format("the window at {} of an axis of {} holds padding alone, which has no "
                              "largest element and no mean",
                              o, a.in));
  };
  for (const WindowAxis& a : windows.axis) {
    for (std::int64_t o = 0;
         o < (a.dilation > 1 ? a.out : std::min<std::int64_t>(1, a.out)) && a.start(o) < 0; ++o)
      require_one(a, o);
    if (a.out > 0) require_one(a, a.out - 1);
  }
}

}  // namespace

namespace detail {

Shape pooled_shape(const Shape& x, const Attrs& attrs) {
  if (!x.has_rank()) return Shape::unknown();
  if (x.rank() < 3)
    throw Error(Code::invalid_argument, "x must be [batch, space..., channels], not " + x.text());
  const Shape space = space_of(x), size = size_of_window(x, attrs);
  const Shape out = positions(space, size, attrs);
  check_padding(attrs);
  require_elements(windows_of(space, size, attrs));
  return with_space(x[0], out, x[x.rank() - 1]);
}

void define_pooling(OpBuilder& op, Pool what) {
  const bool is_mean = what == Pool::mean || what == Pool::mean_gradient;
  const int inputs = what == Pool::max || what == Pool::mean ? 1 : 2,
            whole = what == Pool::mean_gradient ? 1 : 0;
  op.inputs(inputs);
  pooling_attrs(op);
  if (what == Pool::mean_gradient) op.shape_only({1});
  op.infer([=](Inference& c) {
    const DType t = c.dtype(0);
    c.require(t != DType::boolean && !is_complex(t),
              std::string(name_of(t)) + " cannot be pooled; cast it");
    if (is_mean) c.require_floating(0);
    require_space(c, whole, "x");
    const Shape pooled = pooled_shape(c.shape(whole), c.attrs());
    if (inputs == 2 && what != Pool::mean_gradient) c.require_same_dtype(0, 1);
    if (what == Pool::max_gradient || what == Pool::mean_gradient) {
      const Shape& dy = c.shape(whole == 1 ? 0 : 1);
      c.require(pooled.is_compatible(dy),
                fmt::format("dy must have shape {}, not {}", pooled.text(), dy.text()));
      return c.output(t, c.shape(whole));
    }
    if (what == Pool::max_at)
      c.require(c.shape(1).is_compatible(c.shape(0)),
                fmt::format("{} and {} differ", c.shape(0).text(), c.shape(1).text()));
    c.output(t, pooled);
  });
  op.calls({Primitive::pool});
  op.kernel([=](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return make_kernel([=, attrs = s.attrs](KernelContext& c) {
      const Shape x = c.input(whole).shape(), pooled = pooled_shape(x, attrs);
      const bool is_gradient = what == Pool::max_gradient || what == Pool::mean_gradient;
      if (is_gradient && c.input(1 - whole).shape() != pooled)
        throw Error(Code::invalid_argument,
                    fmt::format("dy must have shape {}, not {}", pooled.text(),
                                c.input(1 - whole).shape().text()));
      if (what == Pool::max_at && c.input(1).shape() != x)
        throw Error(Code::invalid_argument,
                    fmt::format("{} and {} differ", x.text(), c.input(1).shape().text()));
      PoolArgs args{
          what, c.input(0),     {}, {}, windows_of(space_of(x), size_of_window(x, attrs), attrs),
          x[0], x[x.rank() - 1]};
      if (inputs == 2 && what != Pool::mean_gradient) args.other = c.input(1);
      Tensor out = c.allocate(c.input(0).dtype(), is_gradient ? x : pooled);
      args.out = View(out);
      c.primitives().pool(c.stream(), args);
      c.set(0, std::move(out));
    });
  });
}

}  // namespace detail

}  // namespace troupe
