#include <troupe/functions.hpp>
#include <troupe/ops/composite.hpp>

#include <fmt/format.h>

namespace troupe {

/// The mean over all positions. x: [batch, space..., channels]; result: [batch, channels].
TROUPE_DSL(Expr global_avg_pool(Operand x))
/// The largest element of each channel. x: [batch, space..., channels]; result: [batch, channels].
TROUPE_DSL(Expr global_max_pool(Operand x))
/// Means of windows so placed that the space has `extents`: position o of n over in covers [floor(o in / n), ceil((o + 1) in / n)).
/// The space of x must be known while the graph is built.
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

// A window is a product of ranges, so that means of means, and maxima of maxima, axis by axis, are those of the window:
// all ranges of an axis are equally long to it.
template <class Reduce>
Expr adapted(const char* name, Operand operand, const std::vector<std::int64_t>& extents, Reduce reduce) {
  Composite c(name, {operand});
  const std::vector<std::int64_t> axes = spatial_axes(c);
  c.require(axes.size() == extents.size(), fmt::format("{} extents for {} spatial axes", extents.size(), axes.size()));
  Expr x = c[0];
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const std::int64_t in = c.extent(0, axes[a]), out = extents[a];
    c.require(out >= 1 && in >= 1, fmt::format("cannot make {} positions of {}", out, in));
    Exprs parts;
    for (std::int64_t o = 0; o < out; ++o) {
      std::vector<std::int64_t> starts(static_cast<std::size_t>(c.rank(0)), 0), lengths(starts.size(), -1);
      const std::int64_t from = o * in / out, to = ((o + 1) * in + out - 1) / out;
      starts[a + 1] = from;
      lengths[a + 1] = to - from;
      parts.push_back(reduce(slice(x, starts, lengths), axes[a]));
    }
    x = parts.size() == 1 ? parts[0] : concat(parts, axes[a]);
  }
  return x;
}

}  // namespace

Expr global_avg_pool(Operand x) {
  Composite c("global_avg_pool", {x});
  return mean(c[0], spatial_axes(c));
}
Expr global_max_pool(Operand x) {
  Composite c("global_max_pool", {x});
  return reduce_max(c[0], spatial_axes(c));
}
Expr adaptive_avg_pool(Operand x, std::vector<std::int64_t> extents) {
  return adapted("adaptive_avg_pool", x, extents, [](const Expr& part, std::int64_t axis) { return mean(part, {axis}, true); });
}
Expr adaptive_max_pool(Operand x, std::vector<std::int64_t> extents) {
  return adapted("adaptive_max_pool", x, extents, [](const Expr& part, std::int64_t axis) { return reduce_max(part, {axis}, true); });
}

}  // namespace troupe
