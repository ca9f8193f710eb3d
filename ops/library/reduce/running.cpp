#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>

#include <fmt/format.h>

namespace troupe {

/// Each element along `axis` less the one before it: one fewer than x has.
TROUPE_DSL(Expr diff(Operand x, std::int64_t axis = -1))
/// The largest of all elements up to each along `axis`, whose extent is known.
TROUPE_DSL(Expr cummax(Operand x, std::int64_t axis = -1))
/// The smallest of all elements up to each along `axis`, whose extent is known.
TROUPE_DSL(Expr cummin(Operand x, std::int64_t axis = -1))

namespace {

std::vector<std::int64_t> vector_with(const Expr& x, int axis, std::int64_t value,
                                      std::int64_t elsewhere) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(x.shape().rank()), elsewhere);
  out[static_cast<std::size_t>(axis)] = value;
  return out;
}

// Combines each element with 1, then 2, 4, ... before it: as many steps as the extent has bits.
template <class Larger>
Expr doubled_up(const Composite& c, std::int64_t axis, Larger larger) {
  c.require_numbers(0);
  const int at = c.axis(0, axis);
  const std::int64_t n = c.extent(0, at);
  Expr y = n > 1 ? c[0] : larger(c[0], c[0]);
  for (std::int64_t k = 1; k < n; k *= 2) {
    const Exprs head = split(y, {k, n - k}, at);
    y = concat({head[0],
                larger(head[1], slice(y, vector_with(y, at, 0, 0), vector_with(y, at, n - k, -1)))},
               at);
  }
  return y;
}

}  // namespace

Expr diff(Operand x, std::int64_t axis) {
  Composite c("diff", {x});
  const int at = c.axis(0, axis);
  c.require(c[0].shape()[at] != 0,
            fmt::format("{} has no elements along axis {}", c[0].shape().text(), at));
  const Expr later = slice(c[0], vector_with(c[0], at, 1, 0), vector_with(c[0], at, -1, -1));
  return later - bind1("SliceLike", {c[0], later}, Attrs{{"starts", vector_with(c[0], at, 0, 0)}});
}

Expr cummax(Operand x, std::int64_t axis) {
  Composite c("cummax", {x});
  return doubled_up(c, axis, [](const Expr& a, const Expr& b) { return maximum(a, b); });
}

Expr cummin(Operand x, std::int64_t axis) {
  Composite c("cummin", {x});
  return doubled_up(c, axis, [](const Expr& a, const Expr& b) { return minimum(a, b); });
}

}  // namespace troupe
