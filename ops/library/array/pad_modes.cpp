#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>

#include <fmt/format.h>

namespace troupe {

// Padding with x's own elements; `pad` adds one value. Each axis gets `before` and `after` more
// elements; unknown extents are read when it runs.

/// Mirrored at the first and last element, which are not repeated: of abcd with 2 and 1, cb abcd c.
/// An axis is longer than the padding at either end.
TROUPE_DSL(Expr pad_reflect(Operand x, std::vector<std::int64_t> before,
                            std::vector<std::int64_t> after))
/// The first and last element repeated: of abcd with 2 and 1, aa abcd d.
TROUPE_DSL(Expr pad_edge(Operand x, std::vector<std::int64_t> before,
                         std::vector<std::int64_t> after))
/// As if x went round: of abcd with 2 and 1, cd abcd a. No more is added to either end than there
/// is.
TROUPE_DSL(Expr pad_circular(Operand x, std::vector<std::int64_t> before,
                             std::vector<std::int64_t> after))

namespace {

// `count` elements along `axis`, from `start` on or, below 0, from there before the end.
Expr piece(const Expr& x, int axis, std::int64_t start, std::int64_t count) {
  std::vector<std::int64_t> starts(static_cast<std::size_t>(x.shape().rank()), 0),
      extents(starts.size(), -1);
  starts[static_cast<std::size_t>(axis)] = start;
  extents[static_cast<std::size_t>(axis)] = count;
  return slice(x, starts, extents);
}

Expr piece_reversed(const Composite& c, const Expr& x, int axis, std::int64_t start,
                    std::int64_t count) {
  c.require(count <= 1 << 20,
            fmt::format("mirrors at most 2^20 elements at an end, not {}", count));
  std::vector<std::int64_t> which;
  for (std::int64_t i = count; i-- > 0;) which.push_back(i);
  return gather(piece(x, axis, start, count), c.reader().constant(Tensor::of(which, Shape{count})),
                axis);
}

Expr piece_repeated(const Expr& x, int axis, std::int64_t start, std::int64_t count) {
  std::vector<std::int64_t> times(static_cast<std::size_t>(x.shape().rank()), 1);
  times[static_cast<std::size_t>(axis)] = count;
  return tile(piece(x, axis, start, 1), times);
}

// Pads one axis after the other, so that corners take elements that were already added. An axis to
// which k elements are added has at least `least(k)`. first(x, axis, k) is the padding before it,
// last(x, axis, k) the padding after it.
template <class Least, class First, class Last>
Expr padded_around(const Composite& c, const std::vector<std::int64_t>& before,
                   const std::vector<std::int64_t>& after, Least least, First first, Last last) {
  const int rank = c.rank(0);
  c.require(before.size() == static_cast<std::size_t>(rank) && after.size() == before.size(),
            fmt::format("needs one entry of before and after for each axis of {}, not {} and {}",
                        c[0].shape().text(), before.size(), after.size()));
  Expr y = c[0];
  for (int axis = 0; axis < rank; ++axis) {
    const std::int64_t front = before[static_cast<std::size_t>(axis)],
                       back = after[static_cast<std::size_t>(axis)], n = y.shape()[axis];
    for (const std::int64_t k : {front, back}) {
      c.require(k >= 0 && k <= std::int64_t{1} << 28,
                fmt::format("adds 0 to 2^28 elements to an end, not {} along axis {}", k, axis));
      c.require(k == 0 || n < 0 || n >= least(k),
                fmt::format("adds {} along axis {} of {}, which has too few for that", k, axis,
                            c[0].shape().text()));
    }
    Exprs parts;
    if (front > 0) parts.push_back(first(y, axis, front));
    parts.push_back(y);
    if (back > 0) parts.push_back(last(y, axis, back));
    if (parts.size() > 1) y = concat(parts, axis);
  }
  return identity(y);
}

}  // namespace

Expr pad_reflect(Operand x, std::vector<std::int64_t> before, std::vector<std::int64_t> after) {
  Composite c("pad_reflect", {x});
  return padded_around(
      c, before, after, [](std::int64_t k) { return k + 1; },
      [&](const Expr& e, int axis, std::int64_t k) { return piece_reversed(c, e, axis, 1, k); },
      [&](const Expr& e, int axis, std::int64_t k) {
        return piece_reversed(c, e, axis, -1 - k, k);
      });
}

Expr pad_edge(Operand x, std::vector<std::int64_t> before, std::vector<std::int64_t> after) {
  Composite c("pad_edge", {x});
  return padded_around(
      c, before, after, [](std::int64_t) { return std::int64_t{1}; },
      [](const Expr& e, int axis, std::int64_t k) { return piece_repeated(e, axis, 0, k); },
      [](const Expr& e, int axis, std::int64_t k) { return piece_repeated(e, axis, -1, k); });
}

Expr pad_circular(Operand x, std::vector<std::int64_t> before, std::vector<std::int64_t> after) {
  Composite c("pad_circular", {x});
  return padded_around(
      c, before, after, [](std::int64_t k) { return k; },
      [](const Expr& e, int axis, std::int64_t k) { return piece(e, axis, -k, k); },
      [](const Expr& e, int axis, std::int64_t k) { return piece(e, axis, 0, k); });
}

}  // namespace troupe
