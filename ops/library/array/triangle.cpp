#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>

#include <algorithm>

namespace troupe {

/// Matrices with 0 above diagonal `k` (0: the main one, 1: the next above, -1: below).
TROUPE_DSL(Expr tril(Operand x, std::int64_t k = 0))
/// Matrices with 0 below diagonal `k`.
TROUPE_DSL(Expr triu(Operand x, std::int64_t k = 0))

namespace {

// column - row of each element, counted, so that extents need not be known.
Expr diagonal_of(const Composite& c) {
  Expr one = ones_like(cast(c[0], DType::i32));
  return cumsum(one, -1) - cumsum(one, -2);
}

// As far from the main diagonal as no matrix reaches.
std::int32_t bounded(std::int64_t k) {
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(k, -(std::int64_t{1} << 30), std::int64_t{1} << 30));
}

Expr kept_where(const Composite& c, const Expr& is_in) {
  return c[0].dtype() == DType::boolean ? logical_and(is_in, c[0]) : where(is_in, c[0], 0);
}

}  // namespace

Expr tril(Operand x, std::int64_t k) {
  Composite c("tril", {x});
  c.require(!c[0].shape().has_rank() || c[0].shape().rank() >= 2,
            "needs matrices, not " + c[0].shape().text());
  return kept_where(c, diagonal_of(c) <= c.reader().constant(bounded(k)));
}

Expr triu(Operand x, std::int64_t k) {
  Composite c("triu", {x});
  c.require(!c[0].shape().has_rank() || c[0].shape().rank() >= 2,
            "needs matrices, not " + c[0].shape().text());
  return kept_where(c, diagonal_of(c) >= c.reader().constant(bounded(k)));
}

}  // namespace troupe
