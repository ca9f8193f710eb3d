#include <troupe/functions.hpp>
#include <troupe/ops/composite.hpp>

#include <cmath>

#include <fmt/format.h>

namespace troupe {

/// The squared distances to the mean over `axes` (none given: all), added up and divided by how many they are less `correction` (1: of a sample): of complex
/// numbers a real one. Computed in f64 and rounded once, here and below: of f32 no square is too large or too small.
TROUPE_DSL(Expr variance(Operand x, std::vector<std::int64_t> axes = {}, bool keep_dims = false, double correction = 0))
/// Its square root, whose derivative is 0 where it is 0.
TROUPE_DSL(Expr standard_deviation(Operand x, std::vector<std::int64_t> axes = {}, bool keep_dims = false, double correction = 0))
/// sum(|x|^p)^(1/p) over `axes` (none given: all), a real number of complex ones too; p 1, 2, another above 0, or infinity: the largest |x|. The derivative at 0 is 0.
TROUPE_DSL(Expr norm(Operand x, std::vector<std::int64_t> axes = {}, double p = 2, bool keep_dims = false))

namespace {

// Of what is at least 0: its root, whose derivative at 0 is taken to be 0, among all that lie between the slopes around it.
Expr root(const Expr& x) {
  Expr is_zero = stop_gradient(x) == 0.0;
  return where(is_zero, zeros_like(x), sqrt(where(is_zero, ones_like(x), x)));
}

DType real_of(DType t) { return t == DType::c64 ? DType::f32 : t == DType::c128 ? DType::f64 : t; }

Expr in_double(const Expr& x) { return cast(x, is_complex(x.dtype()) ? DType::c128 : DType::f64); }

// In double, of a complex one for both its parts.
Expr wide_variance(const Composite& c, const std::vector<std::int64_t>& axes, bool keep_dims, double correction) {
  c.require_floating_or_complex(0);
  c.require(std::isfinite(correction), fmt::format("the correction must be finite, not {}", correction));
  c.rank(0);
  const Expr x = in_double(c[0]), off = x - mean(x, axes, true);
  Expr of_all = mean(is_complex(x.dtype()) ? square(real(off)) + square(imaginary(off)) : square(off), axes, keep_dims);
  if (correction == 0) return of_all;
  Expr count = cast(size_of(x), DType::f64) / cast(size_of(of_all), DType::f64);
  return of_all * (count / maximum(count - correction, 0.0));
}

}  // namespace

Expr variance(Operand x, std::vector<std::int64_t> axes, bool keep_dims, double correction) {
  Composite c("variance", {x});
  return cast(wide_variance(c, axes, keep_dims, correction), real_of(c[0].dtype()));
}

Expr standard_deviation(Operand x, std::vector<std::int64_t> axes, bool keep_dims, double correction) {
  Composite c("standard_deviation", {x});
  return cast(root(wide_variance(c, axes, keep_dims, correction)), real_of(c[0].dtype()));
}

Expr norm(Operand x, std::vector<std::int64_t> axes, double p, bool keep_dims) {
  Composite c("norm", {x});
  const bool has_parts = is_complex(c[0].dtype());
  c.require_floating_or_complex(0);
  c.require(p > 0, "p must be above 0");
  Expr wide = in_double(c[0]), y;
  if (std::isinf(p)) y = reduce_max(abs(wide), std::move(axes), keep_dims);
  else if (p == 1) y = sum(abs(wide), std::move(axes), keep_dims);
  else if (p == 2) y = root(sum(has_parts ? square(real(wide)) + square(imaginary(wide)) : square(wide), std::move(axes), keep_dims));
  else {
    // Where an element is 0 a power below 1 has no slope, and so where the sum is.
    auto powered = [](const Expr& e, double by) {
      Expr is_zero = stop_gradient(e) == 0.0;
      return where(is_zero, zeros_like(e), pow(where(is_zero, ones_like(e), e), by));
    };
    Expr size = abs(wide);
    y = powered(sum(p < 1 ? powered(size, p) : pow(size, p), std::move(axes), keep_dims), 1 / p);
  }
  return cast(y, real_of(c[0].dtype()));
}

}  // namespace troupe
