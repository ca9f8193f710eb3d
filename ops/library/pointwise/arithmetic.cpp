#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>

#include <limits>
#include <string>

#include <fmt/format.h>

namespace troupe {

// Functions of numeric libraries beside the operators, made of other ops. f16 and bf16 are computed
// in f32.

/// x - trunc(x / y) * y: the remainder with the sign of x, exact; mod has that of y.
TROUPE_DSL(Expr fmod(Operand x, Operand y))
/// The size of x with the sign of y, which -0 has too; that of NaN counts as above 0. The
/// derivative where x is 0 is 0.
TROUPE_DSL(Expr copysign(Operand x, Operand y))
/// x + weight (y - x), exactly x where the weight is 0 and y where it is 1, if y - x is finite.
TROUPE_DSL(Expr lerp(Operand x, Operand y, Operand weight))
/// x with `nan` in place of NaN, and the largest and lowest finite numbers of its dtype in place of
/// infinities; these have no derivative.
TROUPE_DSL(Expr nan_to_num(Operand x, double nan = 0))
/// True where |x - y| <= absolute + relative |y|. Infinities are close to themselves alone, NaN to
/// nothing, but to NaN if `equal_nan`. Compared in f64.
TROUPE_DSL(Expr is_close(Operand x, Operand y, double relative = 1e-5, double absolute = 1e-8,
                         bool equal_nan = false))

namespace {

void require_one_dtype(const Composite& c) {
  for (std::size_t i = 1; i < c.operands(); ++i)
    c.require(c[i].dtype() == c[0].dtype(),
              fmt::format("works on one dtype, not {} and {}; cast one of them",
                          name_of(c[0].dtype()), name_of(c[i].dtype())));
}

void require_ordered(const Composite& c) {
  c.require(is_floating(c[0].dtype()) || is_integer(c[0].dtype()),
            fmt::format("needs real numbers, not {}", name_of(c[0].dtype())));
  require_one_dtype(c);
}

// True if the sign is minus; the sign of a zero shows only in its reciprocal.
Expr is_signed(const Expr& x) {
  const Expr fixed = stop_gradient(x);
  return logical_or(fixed < 0.0, logical_and(fixed == 0.0, reciprocal(fixed) < 0.0));
}

double largest_of(DType t) {
  switch (t) {
    case DType::f16: return 65504;
    case DType::bf16: return 0x1.FEp127;
    case DType::f32: return std::numeric_limits<float>::max();
    default: return std::numeric_limits<double>::max();
  }
}

}  // namespace

Expr fmod(Operand x, Operand y) {
  Composite c("fmod", {x, y});
  require_ordered(c);
  if (is_integer(c[0].dtype())) {
    const Expr r = mod(c[0], c[1]);
    return where(logical_and(r != 0, logical_xor(r < 0, c[0] < 0)), r - c[1], r);
  }
  // Computed on absolute values: near 0 the remainder with the other sign loses digits.
  const Expr a = widened_half(c[0]), b = widened_half(c[1]), is_minus = is_signed(a),
             r = mod(where(is_minus, -a, a), abs(b));
  return cast(where(is_minus, -r, r), c[0].dtype());
}

Expr copysign(Operand x, Operand y) {
  Composite c("copysign", {x, y});
  c.require_floating(0);
  require_one_dtype(c);
  const Expr size = abs(c[0]);
  return where(is_signed(c[1]), -size, size);
}

Expr lerp(Operand x, Operand y, Operand weight) {
  Composite c("lerp", {x, y, weight});
  c.require_floating(0);
  require_one_dtype(c);
  const Expr a = widened_half(c[0]), b = widened_half(c[1]), w = widened_half(c[2]), d = b - a;
  return cast(where(w < 0.5, a + w * d, b - (1.0 - w) * d), c[0].dtype());
}

Expr nan_to_num(Operand x, double nan) {
  Composite c("nan_to_num", {x});
  c.require_floating(0);
  const double largest = largest_of(c[0].dtype());
  return minimum(maximum(where(is_nan(c[0]), nan, c[0]), -largest), largest);
}

Expr is_close(Operand x, Operand y, double relative, double absolute, bool equal_nan) {
  Composite c("is_close", {x, y});
  require_ordered(c);
  c.require(relative >= 0 && absolute >= 0,
            fmt::format("tolerances must be at least 0, not {} and {}", relative, absolute));
  const Expr a = cast(stop_gradient(c[0]), DType::f64), b = cast(stop_gradient(c[1]), DType::f64),
             error = abs(a - b);
  Expr close = logical_or(c[0] == c[1],
                          logical_and(is_finite(error), error <= absolute + relative * abs(b)));
  if (equal_nan) close = logical_or(close, logical_and(is_nan(a), is_nan(b)));
  return close;
}

}  // namespace troupe
