#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/custom_gradient.hpp>

#include <cmath>
#include <numbers>
#include <string>

#include <fmt/format.h>

namespace troupe {

// Activations that are made of other ops; the rest are ops of their own. f16 and bf16 are computed
// in f32.

/// gelu by its approximation with tanh, x/2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) (Hendrycks
/// and Gimpel, 2016).
TROUPE_DSL(Expr gelu_tanh(Operand x))
/// The first half of x along `axis` times sigmoid of the second (Dauphin et al., 2017).
TROUPE_DSL(Expr glu(Operand x, std::int64_t axis = -1))
/// x above 0, slope x below: leaky_relu with a slope that is learnt, a scalar or one for each
/// element of the last axis (He et al., 2015).
TROUPE_DSL(Expr prelu(Operand x, Operand slope))
/// x above 0, alpha (exp(x / alpha) - 1) below: elu whose derivative is continuous at 0 for any
/// alpha (Barron, 2017).
TROUPE_DSL(Expr celu(Operand x, double alpha = 1))
/// x less `lambda` above lambda, plus it below -lambda, 0 between.
TROUPE_DSL(Expr soft_shrink(Operand x, double lambda = 0.5))
/// x, but 0 in [-lambda, lambda].
TROUPE_DSL(Expr hard_shrink(Operand x, double lambda = 0.5))

namespace {

Expr floating_operand(const Composite& c) {
  c.require_floating(0);
  return widened_half(c[0]);
}

void require_finite_from(const Composite& c, const char* name, double value, bool is_zero_good) {
  c.require(std::isfinite(value) && (value > 0 || (is_zero_good && value == 0)),
            fmt::format("{} must be finite and {} 0, not {}", name,
                        is_zero_good ? "at least" : "above", value));
}

}  // namespace

Expr gelu_tanh(Operand x) {
  Composite c("gelu_tanh", {x});
  const Expr e = floating_operand(c);
  // (1 + tanh(u)) / 2 is sigmoid(2 u), which has digits on either side. For |x| beyond 30 the
  // sigmoid is 0 or 1.
  constexpr double factor = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  const auto inside = [](const Expr& v) { return factor * (v + 0.044715 * (v * square(v))); };
  const auto slope = [inside](const Expr& dy, const Exprs& xs, const Expr&) {
    const Expr v = clip(xs[0], -30.0, 30.0), u = inside(v),
               steep = factor * (1.0 + 0.134145 * square(v));
    return Exprs{dy * (sigmoid(u) * (1.0 + v * sigmoid(-u) * steep))};
  };
  const Expr value = maximum(e, -30.0) * sigmoid(inside(clip(e, -30.0, 30.0)));
  return cast(with_gradient(value, {e}, slope), c[0].dtype());
}

Expr glu(Operand x, std::int64_t axis) {
  Composite c("glu", {x});
  const Expr e = floating_operand(c);
  c.axis(0, axis);
  const std::int64_t both = c.extent(0, axis);
  c.require(both % 2 == 0, fmt::format("{} elements along axis {} have no half", both, axis));
  const Exprs halves = split(e, {both / 2, both / 2}, axis);
  return cast(halves[0] * sigmoid(halves[1]), c[0].dtype());
}

Expr prelu(Operand x, Operand slope) {
  Composite c("prelu", {x, slope});
  const Expr e = floating_operand(c);
  c.require(c[1].dtype() == c[0].dtype(),
            fmt::format("works on one dtype, not {} and {}; cast one of them",
                        name_of(c[0].dtype()), name_of(c[1].dtype())));
  c.require(c.rank(1) == 0 || (c.rank(1) == 1 && c.rank(0) >= 1),
            fmt::format("slope must be a scalar or [channels], not {} to {}", c[1].shape().text(),
                        c[0].shape().text()));
  const Expr by =
      c.rank(1) == 1 ? c.with_extent(c[1], 0, c[0], c.rank(0) - 1, "the number of channels") : c[1];
  return cast(where(e > 0.0, e, widened_half(by) * e), c[0].dtype());
}

Expr celu(Operand x, double alpha) {
  Composite c("celu", {x});
  const Expr e = floating_operand(c);
  require_finite_from(c, "alpha", alpha, false);
  return cast(where(e > 0.0, e, alpha * expm1(minimum(e, 0.0) / alpha)), c[0].dtype());
}

Expr soft_shrink(Operand x, double lambda) {
  Composite c("soft_shrink", {x});
  const Expr e = floating_operand(c);
  require_finite_from(c, "lambda", lambda, true);
  return cast(e - minimum(maximum(e, -lambda), lambda), c[0].dtype());
}

Expr hard_shrink(Operand x, double lambda) {
  Composite c("hard_shrink", {x});
  const Expr e = floating_operand(c);
  require_finite_from(c, "lambda", lambda, true);
  return cast(where(abs(e) <= lambda, 0.0, e), c[0].dtype());
}

}  // namespace troupe
