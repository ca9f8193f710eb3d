#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/custom_gradient.hpp>

#include <numbers>
#include <string>

namespace troupe {

// Made of log, exp and pow; f16 and bf16 are computed with in f32.

/// The logarithm to base 2; a whole number of each power of 2.
TROUPE_DSL(Expr log2(Operand x))
/// The logarithm to base 10; a whole number of each power of 10.
TROUPE_DSL(Expr log10(Operand x))
/// 2^x.
TROUPE_DSL(Expr exp2(Operand x))
/// log(exp(x) + exp(y)), without overflow; -infinity where both are.
TROUPE_DSL(Expr log_add_exp(Operand x, Operand y))
/// log(x / (1 - x)), the inverse of sigmoid: of x in [0, 1], NaN beyond.
TROUPE_DSL(Expr logit(Operand x))
/// x log(y), and 0 where x is 0 for any y but NaN. The derivatives are 0 too where x is 0 and
/// log(y) is not finite.
TROUPE_DSL(Expr x_log_y(Operand x, Operand y))

namespace {

// Returns operand i in the dtype in which it is computed.
Expr wide_operand(const Composite& c, std::size_t i = 0) {
  c.require_floating(i);
  c.require(c[i].dtype() == c[0].dtype(),
            "works on one dtype, not " + std::string(name_of(c[0].dtype())) + " and " +
                std::string(name_of(c[i].dtype())) + "; cast one of them");
  return widened_half(c[i]);
}

// log(x) times `of_e`, the base's logarithm of e. Both are rounded. So for a power of the base,
// whose logarithm is whole, the product may be a bit or two off, and its floor off by one: a result
// next to a whole number becomes that number.
Expr logarithm(const Composite& c, double of_e) {
  const Expr y = log(wide_operand(c)) * of_e, whole = stop_gradient(round(y)),
             off = whole - stop_gradient(y);
  return cast(
      y + where(abs(off) <= abs(whole) * (y.dtype() == DType::f64 ? 0x1p-51 : 0x1p-22), off, 0.0),
      c[0].dtype());
}

}  // namespace

Expr log2(Operand x) {
  Composite c("log2", {x});
  return logarithm(c, std::numbers::log2e);
}

Expr log10(Operand x) {
  Composite c("log10", {x});
  return logarithm(c, std::numbers::log10e);
}

Expr exp2(Operand x) {
  Composite c("exp2", {x});
  return cast(pow(2.0, wide_operand(c)), c[0].dtype());
}

Expr log_add_exp(Operand x, Operand y) {
  Composite c("log_add_exp", {x, y});
  const Expr a = wide_operand(c, 0), b = wide_operand(c, 1), larger = maximum(a, b);
  // Two that are infinite alike have no difference that is a number.
  const auto between = [](const Expr& of, const Expr& other) {
    return where(logical_and(of == other, is_inf(of)), 0.0, of - other);
  };
  const Expr value = larger + log1p(exp(-abs(between(a, b))));
  const auto shares = [between](const Expr& dy, const Exprs& xs, const Expr&) {
    return Exprs{sum_to(dy * sigmoid(between(xs[0], xs[1])), xs[0]),
                 sum_to(dy * sigmoid(between(xs[1], xs[0])), xs[1])};
  };
  return cast(with_gradient(value, {a, b}, shares), c[0].dtype());
}

Expr logit(Operand x) {
  Composite c("logit", {x});
  const Expr wide = wide_operand(c);
  // Near 1/2, where the logarithms of x and of 1 - x are nearly equal, of their quotient.
  const Expr is_middle = abs(wide - 0.5) < 0.25,
             near = where(is_middle, wide, fill_like(wide, 0.5));
  const Expr value =
      where(is_middle, log1p((2.0 * near - 1.0) / (1.0 - near)), log(wide) - log1p(-wide));
  const auto slope = [](const Expr& dy, const Exprs& xs, const Expr&) {
    return Exprs{dy / xs[0] + dy / (1.0 - xs[0])};
  };
  return cast(with_gradient(value, {wide}, slope), c[0].dtype());
}

Expr x_log_y(Operand x, Operand y) {
  Composite c("x_log_y", {x, y});
  const Expr a = wide_operand(c, 0), b = wide_operand(c, 1);
  // No more than must be: where x is 0 and log(y) is a number, that is the slope in x.
  const Expr is_zero = logical_and(a == 0.0, logical_or(b <= 0.0, is_inf(b)));
  return cast(where(is_zero, 0.0, a * log(where(is_zero, 1.0, b))), c[0].dtype());
}

}  // namespace troupe
