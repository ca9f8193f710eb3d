#include <troupe/ops/families/row_norm.hpp>

#include <cmath>

#include <fmt/format.h>

#include <troupe/devices/device/row_norm.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/accumulator.hpp>
#include <troupe/ops/graph/gradient.hpp>

namespace troupe::detail {
namespace {

Expr in(DType t, const Expr& e) { return e.dtype() == t ? e : cast(e, t); }
Expr over_rows(const Expr& e) { return mean(e, {-1}, true); }

std::int64_t channels_of(const Shape& x) { return x.has_rank() ? x[x.rank() - 1] : kAny; }
Shape shape_of_rows(const Shape& x) {
  return x.has_rank() ? x.without(x.rank() - 1) : Shape::unknown();
}

std::string parameters_differ(const Shape& x, const Shape& s) {
  return fmt::format("parameters are of shape [{}], not {}",
                     channels_of(x) < 0 ? "?" : std::to_string(channels_of(x)), s.text());
}
bool is_of_channels(const Shape& x, const Shape& s) {
  return !s.has_rank() || s.rank() == 0 ||
         (s.rank() == 1 && s.is_compatible(Shape{channels_of(x)}));
}

void require_rows(const Inference& c, int parameters) {
  c.require_floating(0);
  c.require(!c.shape(0).has_rank() || c.shape(0).rank() >= 1, "a scalar has no channels");
  for (int i = 1; i <= parameters; ++i) {
    c.require_same_dtype(0, i);
    c.require(is_of_channels(c.shape(0), c.shape(i)), parameters_differ(c.shape(0), c.shape(i)));
  }
}

// The rows of x when a kernel runs. `rows_now` checks extents that inference could not.
struct Rows {
  std::int64_t rows, n;
};
Rows rows_now(KernelContext& c, int parameters) {
  const Shape& x = c.input(0).shape();
  if (x.rank() == 0) throw Error(Code::invalid_argument, "a scalar has no channels");
  for (int i = 1; i <= parameters; ++i)
    if (!is_of_channels(x, c.input(i).shape()))
      throw Error(Code::invalid_argument, parameters_differ(x, c.input(i).shape()));
  return {shape_of_rows(x).elements(), channels_of(x)};
}

}  // namespace

template <bool centered>
void define_row_norm(OpBuilder& op, const char* gradient) {
  constexpr int kParameters = centered ? 2 : 1, kRstd = kParameters;
  op.inputs(1 + kParameters);
  op.attr<double>("epsilon", 1e-5);
  op.infer([](Inference& c) {
    require_rows(c, kParameters);
    const double epsilon = c.attrs().get<double>("epsilon");
    c.require(epsilon >= 0 && std::isfinite(epsilon),
              fmt::format("epsilon must be finite and at least 0, not {}", epsilon));
    c.output(c.dtype(0), c.shape(0));
    for (int i = 0; i < kParameters; ++i)
      c.output(accumulator_dtype(c.dtype(0)), shape_of_rows(c.shape(0)));
  });
  op.gradient([gradient](Gradient& g) {
    Expr dx;
    if (g.has_dy(0)) {
      Exprs d;
      if constexpr (centered) d = bind_op(gradient, {g.x(0), g.x(1), g.y(1), g.y(kRstd), g.dy(0)});
      else d = bind_op(gradient, {g.x(0), g.x(1), g.y(kRstd), g.dy(0)});
      dx = d[0];
      for (int i = 1; i <= kParameters; ++i)
        if (g.needs(i)) g.set(i, sum_to(d[static_cast<std::size_t>(i)], g.x(i)));
    }
    if (!g.needs(0)) return;
    // The moments may have been used, too. The derivative of the mean is 1 / n, that of rstd
    // -rstd^3 (x - mean) / n.
    const DType type = g.y(kRstd).dtype();
    auto also = [&](const Expr& e) {
      dx = dx.is_empty() ? in(g.x().dtype(), e) : dx + in(g.x().dtype(), e);
    };
    Expr x = in(type, g.x()), ones = ones_like(x), each = ones / sum(ones, {-1}, true);
    if (centered && g.has_dy(1)) also(expand_dims(g.dy(1), -1) * each);
    if (g.has_dy(kRstd)) {
      Expr rstd = expand_dims(g.y(kRstd), -1), off = centered ? x - expand_dims(g.y(1), -1) : x;
      also(-expand_dims(g.dy(kRstd), -1) * rstd * square(rstd) * off * each);
    }
    if (!dx.is_empty()) g.set(0, dx);
  });
  op.calls({Primitive::row_norm});
  op.run([](KernelContext& c, const Attrs& attrs) {
    const Rows at = rows_now(c, kParameters);
    const Shape x = c.input(0).shape();
    RowNormArgs a{
        c.input(0), c.input(1), {}, {}, {}, {}, at.rows, at.n, attrs.get<double>("epsilon"),
        centered};
    const DType moments = accumulator_dtype(a.x.dtype);
    Tensor mean, rstd = c.allocate(moments, shape_of_rows(x));
    a.rstd = View(rstd);
    if (centered) {
      a.bias = c.input(2);
      mean = c.allocate(moments, shape_of_rows(x));
      a.mean = View(mean);
    }
    Tensor y = c.allocate_over(0, a.x.dtype, x);
    a.y = View(y);
    c.primitives().row_norm(c.stream(), a);
    c.set(0, std::move(y));
    if (centered) c.set(1, std::move(mean));
    c.set(kRstd, std::move(rstd));
  });
}

template <bool centered>
void define_row_norm_gradient(OpBuilder& op) {
  constexpr int kRstd = centered ? 3 : 2, kDy = kRstd + 1;
  op.inputs(kDy + 1);
  op.infer([](Inference& c) {
    require_rows(c, 1);
    const Shape& x = c.shape(0);
    for (int i = 2; i <= kRstd; ++i) {
      c.require_dtype(i, accumulator_dtype(c.dtype(0)), i < kRstd ? "the mean" : "rstd");
      c.require(
          shape_of_rows(x).is_compatible(c.shape(i)),
          "the moments are of shape " + shape_of_rows(x).text() + ", not " + c.shape(i).text());
    }
    c.require_same_dtype(0, kDy);
    c.require(x.is_compatible(c.shape(kDy)),
              "dy is of shape " + x.text() + ", not " + c.shape(kDy).text());
    const Shape both = x.merge(c.shape(kDy));
    c.output(c.dtype(0), both);
    for (int i = 0; i < (centered ? 2 : 1); ++i) c.output(c.dtype(0), Shape{channels_of(both)});
  });
  op.gradient([](Gradient& g) {
    // With h = (x - mean) rstd, s = dy scale, and q v = v - mean of v - h mean of v h: dx = rstd q
    // s, dscale = sum of dy h, dbias = sum of dy. q is its own transpose; a, b and c are the
    // cotangents of the three.
    const DType type = accumulator_dtype(g.x().dtype());
    auto given = [&](int i) { return in(type, g.dy(i)); };
    auto row = [&](int i) { return expand_dims(g.x(i), -1); };
    Expr x = in(type, g.x()), scale = in(type, g.x(1)), rstd = row(kRstd), dy = in(type, g.x(kDy)),
         a = given(0), b = given(1);
    Expr off = centered ? x - row(2) : x, h = off * rstd, s = dy * scale;
    auto q = [&](const Expr& v) {
      Expr rest = v - h * over_rows(v * h);
      return centered ? rest - over_rows(v) : rest;
    };
    Expr of_s = rstd * q(a), of_h = b * dy - rstd * (a * over_rows(s * h) + over_rows(a * h) * s);
    auto set = [&](int i, const Expr& e) {
      if (g.needs(i)) g.set(i, in(g.x(i).dtype(), e));
    };
    set(0, of_h * rstd);
    set(1, sum_to(dy * of_s, g.x(1)));
    if (centered) set(2, -sum(of_h * rstd, {-1}));
    set(kRstd, sum(of_h * off + a * q(s), {-1}));
    set(kDy, centered ? scale * of_s + b * h + given(2) : scale * of_s + b * h);
  });
  op.calls({Primitive::row_norm_gradient});
  op.run([](KernelContext& c) {
    const Rows at = rows_now(c, 1);
    const Shape x = c.input(0).shape();
    for (int i = 2; i <= kRstd; ++i)
      if (c.input(i).shape() != shape_of_rows(x))
        throw Error(Code::invalid_argument, "the moments are of shape " + shape_of_rows(x).text() +
                                                ", not " + c.input(i).shape().text());
    if (c.input(kDy).shape() != x)
      throw Error(Code::invalid_argument,
                  "dy is of shape " + x.text() + ", not " + c.input(kDy).shape().text());
    RowNormGradientArgs a{c.input(0), c.input(1), {},      c.input(kRstd), c.input(kDy), {},
                          {},         {},         at.rows, at.n,           centered};
    Tensor dscale = c.allocate(a.x.dtype, Shape{at.n}), dbias;
    a.dscale = View(dscale);
    if (centered) {
      a.mean = c.input(2);
      dbias = c.allocate(a.x.dtype, Shape{at.n});
      a.dbias = View(dbias);
    }
    Tensor dx = c.allocate_over(kDy, a.x.dtype, x);
    a.dx = View(dx);
    c.primitives().row_norm_gradient(c.stream(), a);
    c.set(0, std::move(dx));
    c.set(1, std::move(dscale));
    if (centered) c.set(2, std::move(dbias));
  });
}

template void define_row_norm<true>(OpBuilder&, const char*);
template void define_row_norm<false>(OpBuilder&, const char*);
template void define_row_norm_gradient<true>(OpBuilder&);
template void define_row_norm_gradient<false>(OpBuilder&);

}  // namespace troupe::detail
