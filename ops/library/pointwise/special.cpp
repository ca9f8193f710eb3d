#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/custom_gradient.hpp>

#include <cmath>
#include <numbers>

#include <fmt/format.h>

namespace troupe {

// Computed in f64 and rounded once; the errors below are those of the f64 results.

/// The x whose erf is each element: within 1e-14, of |x| <= 1; +-inf at +-1, NaN beyond.
TROUPE_DSL(Expr erf_inverse(Operand x))
/// The logarithm of |gamma(x)|, within 1e-13 of its size or of 1; inf at 0, -1, -2, ...
TROUPE_DSL(Expr log_gamma(Operand x))
/// The derivative of log_gamma, within 1e-12 of its size or of 1; -inf at 0, inf at -0, NaN at -1,
/// -2, ...
TROUPE_DSL(Expr digamma(Operand x))
/// The derivative of digamma (order 1), of that (order 2), ...: for x above 0.
TROUPE_DSL(Expr polygamma(Operand x, std::int64_t order))

namespace {

Expr wide_of(const Composite& c) {
  c.require_floating(0);
  return cast(c[0], DType::f64);
}

// Stirling's series at y >= 10, B_2n / (2n (2n - 1) y^(2n - 1)).
Expr stirling(const Expr& y) {
  Expr r = 1.0 / y, s = r * r;
  Expr series =
      r * (1.0 / 12 -
           s * (1.0 / 360 -
                s * (1.0 / 1260 - s * (1.0 / 1680 - s * (1.0 / 1188 - s * (691.0 / 360360))))));
  return (y - 0.5) * log(y) - y + 0.5 * std::log(2 * std::numbers::pi) + series;
}

// |sin(pi t)| of |t| <= 1/2: the series to t^21, whose next term is 1e-18; libm's sine takes one
// element at a time.
Expr sine_of_half_turn(const Expr& t) {
  constexpr int kTerms = 10;
  auto coefficient = [](int k) { return (k % 2 ? -1 : 1) / std::tgamma(2.0 * k + 2); };
  Expr angle = std::numbers::pi * t, s = square(angle),
       series = coefficient(kTerms) * s + coefficient(kTerms - 1);
  for (int k = kTerms - 2; k >= 0; --k) series = series * s + coefficient(k);
  return abs(angle * series);
}

// sum over n of 1 / (x + n)^(order + 1), from 0 on, for x > 0: terms to 15, then Euler and
// Maclaurin.
Expr zeta_of(const Expr& x, double s) {
  Expr total = zeros_like(x);
  for (int n = 0; n < 15; ++n) total = total + pow(x + static_cast<double>(n), -s);
  Expr y = x + 15.0, p = pow(y, -s);
  total = total + y * p / (s - 1) + 0.5 * p;
  const double bernoulli[] = {1.0 / 12, -1.0 / 720, 1.0 / 30240, -1.0 / 1209600, 1.0 / 47900160};
  double rising = s;
  Expr q = p / y;
  for (int k = 0; k < 5; ++k) {
    total = total + bernoulli[k] * rising * q;
    rising *= (s + 2 * k + 1) * (s + 2 * k + 2);
    q = q / square(y);
  }
  return total;
}

}  // namespace

Expr erf_inverse(Operand x) {
  Composite c("erf_inverse", {x});
  Expr y = wide_of(c), fixed = stop_gradient(y), size = abs(fixed),
       w = -log((1.0 - fixed) * (1.0 + fixed));
  // Winitzki's formula (2008), then Newton and Halley on erf.
  const double a = 0.147, front = 2 / (std::numbers::pi * a);
  Expr half = front - 0.5 * w,
       guess = sign(fixed) * sqrt(maximum(sqrt(square(half) + w / a) - half, 0.0));
  for (int i = 0; i < 3; ++i) {
    // Near 1 of the distances to it, which have digits.
    Expr off =
        where(size < 0.5, erf(guess) - fixed, sign(fixed) * ((1.0 - size) - erfc(abs(guess))));
    Expr error = off / (2 / std::sqrt(std::numbers::pi) * exp(-square(guess)));
    guess = guess - error / (1.0 + guess * error);
  }
  Expr inside = size < 1.0;
  // -0 of -0
  Expr value = where(inside, where(fixed == 0.0, fixed, guess),
                     where(size == 1.0, fixed * INFINITY, fill_like(fixed, NAN)));
  auto slope = [](const Expr& dy, const Exprs&, const Expr& out) {
    return Exprs{dy * (0.5 * std::sqrt(std::numbers::pi) * exp(square(out)))};
  };
  return cast(with_gradient(value, {y}, slope), c[0].dtype());
}

Expr digamma(Operand x) {
  Composite c("digamma", {x});
  Expr wide = wide_of(c), fixed = stop_gradient(wide);
  // Below 1/2 by reflection; up to 10 by recurrence; then the asymptotic series.
  Expr reflected = fixed < 0.5, y = where(reflected, 1.0 - fixed, fixed), shift = zeros_like(y),
       at = y;
  for (int i = 0; i < 10; ++i) {
    Expr low = at < 10.0;
    shift = shift + where(low, 1.0 / at, zeros_like(at));
    at = where(low, at + 1.0, at);
  }
  Expr r = 1.0 / at, s = r * r;
  Expr value =
      log(at) - 0.5 * r -
      s * (1.0 / 12 -
           s * (1.0 / 120 -
                s * (1.0 / 252 - s * (1.0 / 240 - s * (1.0 / 132 - s * (691.0 / 32760)))))) -
      shift;
  Expr turn = fixed - round(fixed), cotangent = std::numbers::pi / tan(std::numbers::pi * turn);
  value = where(reflected, value - where(turn == 0.0, fill_like(turn, NAN), cotangent), value);
  value = where(fixed == 0.0, -1.0 / fixed, value);
  // By reflection: trigamma(x) = (pi / sin(pi x))^2 - trigamma(1 - x).
  auto slope = [](const Expr& dy, const Exprs& xs, const Expr&) {
    Expr below = xs[0] < 0.5, up = polygamma(where(below, 1.0 - xs[0], xs[0]), 1),
         sine = sin(std::numbers::pi * (xs[0] - round(stop_gradient(xs[0]))));
    return Exprs{
        dy * where(below, square(std::numbers::pi / where(below, sine, ones_like(sine))) - up, up)};
  };
  return cast(with_gradient(value, {wide}, slope), c[0].dtype());
}

Expr polygamma(Operand x, std::int64_t order) {
  Composite c("polygamma", {x});
  c.require(order >= 1 && order <= 20,
            fmt::format("the order must be from 1 to 20, not {}", order));
  const double factor = (order % 2 ? 1 : -1) * std::tgamma(static_cast<double>(order) + 1);
  return cast(factor * zeta_of(wide_of(c), static_cast<double>(order) + 1), c[0].dtype());
}

Expr log_gamma(Operand x) {
  Composite c("log_gamma", {x});
  Expr wide = wide_of(c), fixed = stop_gradient(wide);
  // Below 1/2 by reflection, gamma(x) gamma(1 - x) = pi / sin(pi x). Below 10 ten steps up, over y
  // (y + 1) ... (y + 9): the factors of i and 9 - i make y^2 + 9 y + i (9 - i).
  Expr reflected = fixed < 0.5, y = where(reflected, 1.0 - fixed, fixed), low = y < 10.0,
       pairs = y * (y + 9.0);
  Expr product = where(
           low, pairs * (pairs + 8.0) * (pairs + 14.0) * (pairs + 18.0) * (pairs + 20.0), 1.0),
       series = stirling(where(low, y + 10.0, y));
  // One logarithm for the steps and the sine. If the sine is tiny, their quotient could be
  // infinite.
  Expr sine = sine_of_half_turn(fixed - round(fixed)), tiny = sine < 0x1p-500;
  Expr logarithm =
      log(where(reflected, product / where(tiny, sine * 0x1p300, sine), product)) +
      where(logical_and(reflected, tiny), fill_like(fixed, 300 * std::numbers::ln2), 0.0);
  Expr value =
      where(reflected, std::log(std::numbers::pi) - series + logarithm, series - logarithm);
  // Poles are set to infinity: at the largest the series is infinite too, and the difference NaN.
  value = where(logical_or(is_inf(fixed), logical_and(reflected, sine == 0.0)), INFINITY, value);
  return cast(with_gradient(value, {wide},
                            [](const Expr& dy, const Exprs& xs, const Expr&) {
                              return Exprs{dy * digamma(xs[0])};
                            }),
              c[0].dtype());
}

}  // namespace troupe
