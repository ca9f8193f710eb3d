#include <troupe/functions.hpp>
#include <troupe/ops/composite.hpp>
#include <troupe/ops/op.hpp>
#include <troupe/ops/reader.hpp>

#include <fmt/format.h>

namespace troupe {

/// The mean over all positions. x: [batch, space..., channels]; result: [batch, channels].
TROUPE_DSL(Expr global_avg_pool(Operand x))
/// The largest element of each channel. x: [batch, space..., channels]; result: [batch, channels].
TROUPE_DSL(Expr global_max_pool(Operand x))
/// Means of windows so placed that the space has `extents`: position o of n over in covers [floor(o in / n), ceil((o + 1) in / n)).
TROUPE_DSL(Expr adaptive_avg_pool(Operand x, std::vector<std::int64_t> extents))
/// The same with the largest element.
TROUPE_DSL(Expr adaptive_max_pool(Operand x, std::vector<std::int64_t> extents))

namespace {

std::vector<std::int64_t> spatial_axes(const Composite& c) {
  c.require(c.rank(0) >= 3, "x must be [batch, space..., channels], not " + c[0].shape().text());
  std::vector<std::int64_t> axes;
  for (int i = 1; i < c.rank(0) - 1; ++i) axes.push_back(i);
  return axes;
}

// Means of rows [first, end) of each window along `axis`, or their largest, with everything of x stored once for each window: for windows that are not known, or many.
template <class Reduce>
Expr by_membership(const Composite& c, const Expr& x, int axis, std::int64_t out, Reduce reduce) {
  Expr along = expand_dims(positions_along(x, axis), axis), in = expand_dims(sum(ones_like(cast(stop_gradient(x), DType::i64)), {axis}, true), axis);
  Shape column(std::vector<std::int64_t>(static_cast<std::size_t>(c.rank(0)) + 1, 1));
  column.set(axis, out);
  Expr o = reshape(c.reader().bind(find_op("Range"), {}, Attrs{{"count", out}}, Site())[0], column);
  Expr is_in = logical_and(along >= floor_div(o * in, out), along < floor_div((o + 1) * in + (out - 1), out));
  return reduce(expand_dims(x, axis), is_in, axis + 1);
}

// A window is a product of ranges, so that means of means, and maxima of maxima, axis by axis, are those of the window:
// all ranges of an axis are equally long to it.
template <class Reduce, class ReduceSome>
Expr adapted(const char* name, Operand operand, const std::vector<std::int64_t>& extents, Reduce reduce, ReduceSome reduce_some) {
  Composite c(name, {operand});
  const std::vector<std::int64_t> axes = spatial_axes(c);
  c.require(axes.size() == extents.size(), fmt::format("{} extents for {} spatial axes", extents.size(), axes.size()));
  Shape made = c[0].shape();
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const std::int64_t in = made[static_cast<int>(axes[a])];
    c.require(extents[a] >= 1 && in != 0, fmt::format("cannot make {} positions of {}", extents[a], in));
    c.require(extents[a] <= 4096, fmt::format("makes at most 4096 positions along an axis, not {}", extents[a]));
    made.set(static_cast<int>(axes[a]), extents[a]);
  }
  c.require_fits(made);
  Expr x = c[0];
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const std::int64_t in = c[0].shape()[static_cast<int>(axes[a])], out = extents[a];
    if (out == 1) {
      x = reduce(x, axes[a]);
      continue;
    }
    if (in < 0) {
      x = by_membership(c, x, static_cast<int>(axes[a]), out, reduce_some);
      continue;
    }
    Exprs parts;
    for (std::int64_t o = 0; o < out; ++o) {
      std::vector<std::int64_t> starts(static_cast<std::size_t>(c.rank(0)), 0), lengths(starts.size(), -1);
      const std::int64_t from = o * in / out, to = ((o + 1) * in + out - 1) / out;
      starts[a + 1] = from;
      lengths[a + 1] = to - from;
      parts.push_back(reduce(slice(x, starts, lengths), axes[a]));
    }
    x = concat(parts, axes[a]);
  }
  return x;
}

// The space is there, as far as it is known.
std::vector<std::int64_t> space_of(const Composite& c) {
  const std::vector<std::int64_t> axes = spatial_axes(c);
  for (std::int64_t axis : axes) c.require(c[0].shape()[static_cast<int>(axis)] != 0, "there is no position in " + c[0].shape().text());
  return axes;
}

}  // namespace

Expr global_avg_pool(Operand x) {
  Composite c("global_avg_pool", {x});
  return mean(c[0], spatial_axes(c));
}
Expr global_max_pool(Operand x) {
  Composite c("global_max_pool", {x});
  return reduce_max(c[0], space_of(c));
}
Expr adaptive_avg_pool(Operand x, std::vector<std::int64_t> extents) {
  return adapted(
      "adaptive_avg_pool", x, extents, [](const Expr& part, std::int64_t axis) { return mean(part, {axis}, true); },
      [](const Expr& e, const Expr& is_in, std::int64_t axis) {
        Expr wide = widened_half(e), count = sum(cast(is_in, wide.dtype()), {axis});
        return cast(sum(where(is_in, wide, zeros_like(wide)), {axis}) / count, e.dtype());
      });
}
Expr adaptive_max_pool(Operand x, std::vector<std::int64_t> extents) {
  return adapted(
      "adaptive_max_pool", x, extents, [](const Expr& part, std::int64_t axis) { return reduce_max(part, {axis}, true); },
      [](const Expr& e, const Expr& is_in, std::int64_t axis) {
        // What is outside a window is its own least element, which changes no maximum.
        Expr least = reduce_min(stop_gradient(e), {axis}, true);
        return reduce_max(where(is_in, e, least), {axis});
      });
}

}  // namespace troupe
