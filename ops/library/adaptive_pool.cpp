#include <troupe/functions.hpp>
#include <troupe/ops/composite.hpp>
#include <troupe/ops/custom_gradient.hpp>
#include <troupe/ops/op.hpp>
#include <troupe/ops/reader.hpp>

#include <algorithm>

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

// Of `out` windows over `in` positions.
struct AdaptiveWindow {
  std::int64_t from, to;
};
AdaptiveWindow window_of(std::int64_t o, std::int64_t in, std::int64_t out) { return {o * in / out, ((o + 1) * in + out - 1) / out}; }

// The gradient of the windows' means along an axis: each position takes from the windows that it is in, two at most unless windows are more than positions.
Expr spread_over_windows(const Expr& dy, int rank, int axis, std::int64_t in, std::int64_t out) {
  std::vector<double> shares;
  std::vector<std::vector<std::int64_t>> windows(static_cast<std::size_t>(in));
  for (std::int64_t o = 0; o < out; ++o) {
    const AdaptiveWindow w = window_of(o, in, out);
    shares.push_back(1.0 / static_cast<double>(w.to - w.from));
    for (std::int64_t i = w.from; i < w.to; ++i) windows[static_cast<std::size_t>(i)].push_back(o);
  }
  auto along_axis = [&](std::int64_t extent) {
    Shape s(std::vector<std::int64_t>(static_cast<std::size_t>(rank), 1));
    s.set(axis, extent);
    return s;
  };
  Expr wide = widened_half(dy), shared = wide * cast(dy.reader().constant(Tensor::of(shares, along_axis(out))), wide.dtype()), total;
  for (std::size_t k = 0;; ++k) {
    std::vector<std::int64_t> which, is_in;
    for (const auto& of : windows) {
      which.push_back(k < of.size() ? of[k] : 0);
      is_in.push_back(k < of.size());
    }
    const auto members = std::count(is_in.begin(), is_in.end(), 1);
    if (members == 0) return cast(total, dy.dtype());
    Expr part = gather(shared, dy.reader().constant(Tensor::of(which, Shape{in})), axis);
    if (members < in) part = where(dy.reader().constant(Tensor::of(is_in, along_axis(in))) > 0, part, 0.0);
    total = total.is_empty() ? part : total + part;
  }
}

// x with `axis` of known extent cut into `out` equal pieces, if it can be and no more than one other extent is open.
Expr in_equal_pieces(const Expr& x, int axis, std::int64_t out) {
  const Shape s = x.shape();
  Shape parts;
  for (int i = 0; i < s.rank(); ++i) {
    if (i == axis) parts.push_back(out);
    parts.push_back(i == axis ? s[i] / out : s[i]);
  }
  return s[axis] % out == 0 && std::count(s.begin(), s.end(), kAny) <= 1 ? reshape(x, parts) : Expr();
}

// A window is a product of ranges, so that means of means, and maxima of maxima, axis by axis, are those of the window:
// all ranges of an axis are equally long to it. `joined` may give what the windows of an axis became a gradient.
template <class Reduce, class ReduceSome, class Joined>
Expr adapted(const char* name, Operand operand, const std::vector<std::int64_t>& extents, Reduce reduce, ReduceSome reduce_some, Joined joined) {
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
    const int axis = static_cast<int>(axes[a]);
    if (Expr pieces = in_equal_pieces(x, axis, out); !pieces.is_empty()) {
      x = squeeze(reduce(pieces, axis + 1), axis + 1);
      continue;
    }
    Exprs parts;
    for (std::int64_t o = 0; o < out; ++o) {
      std::vector<std::int64_t> starts(static_cast<std::size_t>(c.rank(0)), 0), lengths(starts.size(), -1);
      const AdaptiveWindow w = window_of(o, in, out);
      starts[a + 1] = w.from;
      lengths[a + 1] = w.to - w.from;
      parts.push_back(reduce(slice(x, starts, lengths), axis));
    }
    x = joined(x, concat(parts, axis), axis, in, out);
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
      },
      [](const Expr& x_now, const Expr& means, int axis, std::int64_t in, std::int64_t out) {
        return with_gradient(means, {x_now}, [=](const Expr& dy, const Exprs& xs, const Expr&) { return Exprs{spread_over_windows(dy, xs[0].shape().rank(), axis, in, out)}; });
      });
}
Expr adaptive_max_pool(Operand x, std::vector<std::int64_t> extents) {
  return adapted(
      "adaptive_max_pool", x, extents, [](const Expr& part, std::int64_t axis) { return reduce_max(part, {axis}, true); },
      [](const Expr& e, const Expr& is_in, std::int64_t axis) {
        // What is outside a window is its own least element, which changes no maximum.
        Expr least = reduce_min(stop_gradient(e), {axis}, true);
        return reduce_max(where(is_in, e, least), {axis});
      },
      [](const Expr&, const Expr& tops, int, std::int64_t, std::int64_t) { return tops; });
}

}  // namespace troupe
