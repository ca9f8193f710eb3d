#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>

#include <cmath>

#include <fmt/format.h>

namespace troupe {

/// The squared distances to the mean over `axes` (none given: all), added up and divided by how
/// many they are less `correction` (1: of a sample): of complex numbers a real one. Computed in f64
/// and rounded once, here and below: of f32 no square is too large or too small; roots of f64's
/// squares are scaled.
TROUPE_DSL(Expr variance(Operand x, detail::Axes axes = {}, bool keep_dims = false,
                         double correction = 0))
/// Its square root, whose derivative is 0 where it is 0.
TROUPE_DSL(Expr standard_deviation(Operand x, detail::Axes axes = {}, bool keep_dims = false,
                                   double correction = 0))
/// sum(|x|^p)^(1/p) over `axes` (none given: all), a real number of complex ones too; p 1, 2,
/// another above 0, or infinity: the largest |x|. The derivative at 0 is 0.
TROUPE_DSL(Expr norm(Operand x, detail::Axes axes = {}, double p = 2, bool keep_dims = false))

namespace {

// Returns the root of x >= 0. Its derivative at 0 is defined as 0, one of the values between the
// slopes around it.
Expr root(const Expr& x) {
  Expr is_zero = stop_gradient(x) == 0.0;
  return where(is_zero, zeros_like(x), sqrt(where(is_zero, ones_like(x), x)));
}

DType real_of(DType t) { return t == DType::c64 ? DType::f32 : t == DType::c128 ? DType::f64 : t; }

Expr in_double(const Expr& x) { return cast(x, is_complex(x.dtype()) ? DType::c128 : DType::f64); }

// The squares of real or complex numbers, each times `by` if there is one.
Expr squares(const Expr& x, const Expr& by = {}) {
  auto of_part = [&](const Expr& part) { return square(by.is_empty() ? part : part * by); };
  return is_complex(x.dtype()) ? of_part(real(x)) + of_part(imaginary(x)) : of_part(x);
}

// Returns the root of `reduced` (a sum or mean) of x's squares. Squares of f64 are scaled, because
// they may be too large or too small for it; squares of f32 are neither in f64.
template <class Reduce>
Expr root_of_squares(const Expr& x, bool is_wide_already, const std::vector<std::int64_t>& axes,
                     bool keep_dims, Reduce reduced) {
  if (!is_wide_already) return root(reduced(squares(x), keep_dims));
  const Expr by = scale_of_squares(reduced(squares(stop_gradient(x)), true)),
             y = root(reduced(squares(x, by), true)) / by;
  return keep_dims ? y : sum(y, axes);
}

bool is_wide(DType t) { return t == DType::f64 || t == DType::c128; }

Expr deviation(const Composite& c, const std::vector<std::int64_t>& axes, double correction) {
  c.require_floating_or_complex(0);
  c.require(std::isfinite(correction),
            fmt::format("the correction must be finite, not {}", correction));
  c.rank(0);
  const Expr x = in_double(c[0]);
  return x - mean(x, axes, true);
}

// A mean of squares over as many as there are less `correction`.
Expr corrected(const Composite& c, const Expr& of_all, double correction) {
  if (correction == 0) return of_all;
  Expr count = cast(size_of(c[0]), DType::f64) / cast(size_of(of_all), DType::f64);
  return of_all * (count / maximum(count - correction, 0.0));
}

}  // namespace

Expr variance(Operand x, detail::Axes axes, bool keep_dims, double correction) {
  Composite c("variance", {x});
  const Expr off = deviation(c, axes, correction);
  return cast(corrected(c, mean(squares(off), axes, keep_dims), correction), real_of(c[0].dtype()));
}

Expr standard_deviation(Operand x, detail::Axes axes, bool keep_dims, double correction) {
  Composite c("standard_deviation", {x});
  const Expr off = deviation(c, axes, correction);
  auto reduced = [&](const Expr& of, bool keep) {
    return corrected(c, mean(of, axes, keep), correction);
  };
  return cast(root_of_squares(off, is_wide(c[0].dtype()), axes, keep_dims, reduced),
              real_of(c[0].dtype()));
}

Expr norm(Operand x, detail::Axes axes, double p, bool keep_dims) {
  Composite c("norm", {x});
  c.require_floating_or_complex(0);
  c.require(p > 0, "p must be above 0");
  Expr wide = in_double(c[0]), y;
  if (std::isinf(p)) y = reduce_max(abs(wide), axes, keep_dims);
  else if (p == 1) y = sum(abs(wide), axes, keep_dims);
  else if (p == 2)
    y = root_of_squares(wide, is_wide(c[0].dtype()), axes, keep_dims,
                        [&](const Expr& of, bool keep) { return sum(of, axes, keep); });
  else {
    // A power below 1 has no slope at 0: neither of an element nor of the sum.
    auto powered = [](const Expr& e, double by) {
      Expr is_zero = stop_gradient(e) == 0.0;
      return where(is_zero, zeros_like(e), pow(where(is_zero, ones_like(e), e), by));
    };
    auto of_sizes = [&](const Expr& size, bool keep) {
      return powered(sum(p < 1 ? powered(size, p) : pow(size, p), axes, keep), 1 / p);
    };
    const Expr size = abs(wide);
    // The range of f64 is enough for powers of f32 up to the sixth. Beyond it, sizes are divided by
    // an estimate of the norm from their logarithms.
    if (p <= 6 && !is_wide(c[0].dtype())) y = of_sizes(size, keep_dims);
    else {
      const Expr about = exp(logsumexp(log(stop_gradient(size)) * p, axes, true) / p),
                 unit = where(logical_and(about > 0.0, is_finite(about)), about, ones_like(about));
      y = of_sizes(size / unit, true) * unit;
      if (!keep_dims) y = sum(y, axes);
    }
  }
  return cast(y, real_of(c[0].dtype()));
}

}  // namespace troupe
