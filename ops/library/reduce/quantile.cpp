#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>

#include <fmt/format.h>

namespace troupe {

/// The number below which a part q of each row along `axis` lies, q in [0, 1], between two of its
/// elements by their line; NaN of a row that holds one. Extents may be unknown.
TROUPE_DSL(Expr quantile(Operand x, double q, std::int64_t axis = -1, bool keep_dims = false))
/// quantile of 1/2: the middle of each row along `axis`, or the mean of the two there.
TROUPE_DSL(Expr median(Operand x, std::int64_t axis = -1, bool keep_dims = false))

Expr quantile(Operand x, double q, std::int64_t axis, bool keep_dims) {
  Composite c("quantile", {x});
  c.require_floating(0);
  c.require(q >= 0 && q <= 1, fmt::format("q must be in [0, 1], not {}", q));
  const int at = c.axis(0, axis);
  c.require(c[0].shape()[at] != 0,
            fmt::format("{} has no elements along axis {}", c[0].shape().text(), at));
  const Expr sorted = sort(c[0], false, at)[0], last = slice(shape_of(c[0]), {at}, {1}) - 1;
  const Expr place = cast(last, DType::f64) * q, below = floor(place);
  const auto element = [&](const Expr& index) {
    return widened_half(gather(sorted, cast(index, DType::i64), at));
  };
  const Expr low = element(below), high = element(ceil(place)),
             largest = stop_gradient(element(last));
  const Expr part = reshape(cast(place - below, low.dtype()), Shape{});
  // the line between two equal infinities is NaN
  const Expr apart = high - low, far = where(logical_and(low == high, is_inf(low)), low,
                                             (1.0 - part) * low + part * high);
  const Expr value = where(is_finite(apart), low + part * apart, far);
  const Expr y = cast(where(is_nan(largest), largest, value), c[0].dtype());  // NaN is sorted last
  return keep_dims ? y : squeeze(y, at);
}

Expr median(Operand x, std::int64_t axis, bool keep_dims) {
  Composite c("median", {x});
  return quantile(c[0], 0.5, axis, keep_dims);
}

}  // namespace troupe
