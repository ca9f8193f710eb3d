#include <troupe/functions.hpp>
#include <troupe/ops/composite.hpp>

#include <cmath>

namespace troupe {

/// The mean of squared distances to the mean over `axes` (none given: all).
TROUPE_DSL(Expr variance(Operand x, std::vector<std::int64_t> axes = {}, bool keep_dims = false))
/// Its square root; no derivative where it is 0.
TROUPE_DSL(Expr standard_deviation(Operand x, std::vector<std::int64_t> axes = {}, bool keep_dims = false))
/// sum(|x|^p)^(1/p) over `axes` (none given: all); p 1, 2, another above 0, or infinity: the largest |x|.
TROUPE_DSL(Expr norm(Operand x, std::vector<std::int64_t> axes = {}, double p = 2, bool keep_dims = false))

Expr variance(Operand x, std::vector<std::int64_t> axes, bool keep_dims) {
  Composite c("variance", {x});
  c.require(is_floating(c[0].dtype()), "needs a floating dtype");
  c.rank(0);
  return mean(square(c[0] - mean(c[0], axes, true)), axes, keep_dims);
}

Expr standard_deviation(Operand x, std::vector<std::int64_t> axes, bool keep_dims) {
  Composite c("standard_deviation", {x});
  return sqrt(variance(c[0], std::move(axes), keep_dims));
}

Expr norm(Operand x, std::vector<std::int64_t> axes, double p, bool keep_dims) {
  Composite c("norm", {x});
  c.require(is_floating(c[0].dtype()), "needs a floating dtype");
  c.require(p > 0, "p must be above 0");
  if (std::isinf(p)) return reduce_max(abs(c[0]), std::move(axes), keep_dims);
  if (p == 1) return sum(abs(c[0]), std::move(axes), keep_dims);
  if (p == 2) return sqrt(sum(square(c[0]), std::move(axes), keep_dims));
  return pow(sum(pow(abs(c[0]), p), std::move(axes), keep_dims), 1 / p);
}

}  // namespace troupe
