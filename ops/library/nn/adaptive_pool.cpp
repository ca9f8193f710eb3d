#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/custom_gradient.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/reader.hpp>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace troupe {

/// The mean over all positions. x: [batch, space..., channels]; result: [batch, channels].
TROUPE_DSL(Expr global_avg_pool(Operand x))
/// The largest element of each channel. x: [batch, space..., channels]; result: [batch, channels].
TROUPE_DSL(Expr global_max_pool(Operand x))
/// Means of windows so placed that the space has `extents`: position o of n over in covers [floor(o
/// in / n), ceil((o + 1) in / n)).
TROUPE_DSL(Expr adaptive_avg_pool(Operand x, std::vector<std::int64_t> extents))
/// The largest elements of the windows of adaptive_avg_pool.
TROUPE_DSL(Expr adaptive_max_pool(Operand x, std::vector<std::int64_t> extents))

namespace {

std::vector<std::int64_t> spatial_axes(const Composite& c) {
  c.require(c.rank(0) >= 3, "x must be [batch, space..., channels], not " + c[0].shape().text());
  std::vector<std::int64_t> axes;
  for (int i = 1; i < c.rank(0) - 1; ++i) axes.push_back(i);
  return axes;
}

// Means of rows [first, end) of each window along `axis`, or their largest, with everything of x
// stored once for each window: for windows that are not known, or many.
template <class Reduce>
Expr by_membership(const Composite& c, const Expr& x, int axis, std::int64_t out, Reduce reduce) {
  Expr along = expand_dims(positions_along(x, axis), axis),
       in = expand_dims(sum(ones_like(cast(stop_gradient(x), DType::i64)), {axis}, true), axis);
  Shape column(std::vector<std::int64_t>(static_cast<std::size_t>(c.rank(0)) + 1, 1));
  column.set(axis, out);
  Expr o = reshape(c.reader().bind(find_op("Range"), {}, Attrs{{"count", out}}, Site())[0], column);
  Expr is_in = logical_and(along >= floor_div(o * in, out),
                           along < floor_div((o + 1) * in + (out - 1), out));
  return reduce(expand_dims(x, axis), is_in, axis + 1);
}

// `out` windows over `in` positions along an axis of tensors of one rank.
struct AdaptiveAxis {
  int rank, axis;
  std::int64_t in, out;

  std::int64_t from(std::int64_t o) const { return o * in / out; }
  std::int64_t to(std::int64_t o) const { return ((o + 1) * in + out - 1) / out; }
  /// One number for each of them, to be broadcast.
  template <class T>
  Expr numbers(Reader& reader, const std::vector<T>& v) const {
    Shape s(std::vector<std::int64_t>(static_cast<std::size_t>(rank), 1));
    s.set(axis, std::ssize(v));
    return reader.constant(Tensor::of(v, s));
  }
  Expr taken(const Expr& of, const std::vector<std::int64_t>& which) const {
    return gather(of, of.reader().constant(Tensor::of(which, Shape{std::ssize(which)})), axis);
  }
};

// Returns for each position the sum of `take` over the windows that it is in. `take` gets the
// windows' numbers, one window of each position at a time: at most two calls unless there are more
// windows than positions.
template <class Take>
Expr sum_over_windows(const AdaptiveAxis& a, Reader& reader, Take take) {
  std::vector<std::vector<std::int64_t>> windows(static_cast<std::size_t>(a.in));
  for (std::int64_t o = 0; o < a.out; ++o)
    for (std::int64_t i = a.from(o); i < a.to(o); ++i)
      windows[static_cast<std::size_t>(i)].push_back(o);
  Expr total;
  for (std::size_t k = 0;; ++k) {
    std::vector<std::int64_t> which, is_in;
    for (const auto& of : windows) {
      which.push_back(k < of.size() ? of[k] : 0);
      is_in.push_back(k < of.size());
    }
    const auto members = std::count(is_in.begin(), is_in.end(), 1);
    if (members == 0) return total;
    Expr part = take(which);
    if (members < a.in) part = where(a.numbers(reader, is_in) > 0, part, 0.0);
    total = total.is_empty() ? part : total + part;
  }
}

// The gradient of the windows' means.
Expr spread_means(const AdaptiveAxis& a, const Expr& dy) {
  std::vector<double> shares;
  for (std::int64_t o = 0; o < a.out; ++o)
    shares.push_back(1.0 / static_cast<double>(a.to(o) - a.from(o)));
  Expr wide = widened_half(dy), share = wide * cast(a.numbers(dy.reader(), shares), wide.dtype());
  return cast(
      sum_over_windows(a, dy.reader(), [&](const auto& which) { return a.taken(share, which); }),
      dy.dtype());
}

// How many elements of each window are its largest, where tensors have no room for one axis more:
// an element of each window at a time.
Expr count_of_tops(const AdaptiveAxis& a, const Expr& x, const Expr& y, std::int64_t longest,
                   DType dtype) {
  Expr count;
  for (std::int64_t k = 0; k < longest; ++k) {
    std::vector<std::int64_t> which, is_in;
    for (std::int64_t o = 0; o < a.out; ++o) {
      which.push_back(std::min(a.from(o) + k, a.to(o) - 1));
      is_in.push_back(a.from(o) + k < a.to(o));
    }
    Expr part = cast(logical_and(a.taken(x, which) == y, a.numbers(x.reader(), is_in) > 0), dtype);
    count = count.is_empty() ? part : count + part;
  }
  return count;
}

// Spreads the cotangent of the windows' largest elements y: equal elements share it.
Expr spread_tops(const AdaptiveAxis& a, const Expr& dy, const Expr& x, const Expr& y) {
  std::int64_t longest = 0;
  for (std::int64_t o = 0; o < a.out; ++o) longest = std::max(longest, a.to(o) - a.from(o));
  const Expr wide = widened_half(dy);
  const auto spread = [&](const Expr& tops) {
    const Expr share = wide / tops;
    return cast(sum_over_windows(a, dy.reader(),
                                 [&](const auto& which_of) {
                                   return where(x == a.taken(y, which_of), a.taken(share, which_of),
                                                0.0);
                                 }),
                dy.dtype());
  };
  if (a.rank == Shape::kMaxRank) return spread(count_of_tops(a, x, y, longest, wide.dtype()));
  // A row of positions for each window; where it is shorter than others its last again, which does
  // not count.
  std::vector<std::int64_t> which, is_in;
  for (std::int64_t o = 0; o < a.out; ++o)
    for (std::int64_t i = a.from(o); i < a.from(o) + longest; ++i) {
      which.push_back(std::min(i, a.to(o) - 1));
      is_in.push_back(i < a.to(o));
    }
  Shape beside(std::vector<std::int64_t>(static_cast<std::size_t>(a.rank) + 1, 1));
  beside.set(a.axis, a.out);
  beside.set(a.axis + 1, longest);
  Reader& reader = dy.reader();
  Expr rows = gather(x, reader.constant(Tensor::of(which, Shape{a.out, longest})), a.axis);
  Expr is_top = logical_and(rows == expand_dims(y, a.axis + 1),
                            reader.constant(Tensor::of(is_in, beside)) > 0);
  return spread(sum(cast(is_top, wide.dtype()), {a.axis + 1}));
}

// x with `axis` of known extent cut into `out` equal pieces, if it can be. One other extent may be
// open: it follows from the rest, unless one of these is 0.
Expr in_equal_pieces(const Expr& x, int axis, std::int64_t out) {
  const Shape s = x.shape();
  const auto open =
      std::count_if(s.begin(), s.end(), [](std::int64_t extent) { return extent <= 0; });
  if (s[axis] % out != 0 || open > 1 || s.rank() == Shape::kMaxRank) return Expr();
  Shape parts;
  for (int i = 0; i < s.rank(); ++i) {
    if (i == axis) parts.push_back(out);
    parts.push_back(i == axis ? s[i] / out : s[i]);
  }
  return reshape(x, parts);
}

// A window is a product of ranges. So means of means, and maxima of maxima, axis by axis, are those
// of the window, because all ranges of an axis are equally long to it. `spread` is the gradient of
// the results of one axis.
template <class Reduce, class ReduceSome, class Spread>
Expr adapted(const char* name, Operand operand, const std::vector<std::int64_t>& extents,
             Reduce reduce, ReduceSome reduce_some, Spread spread) {
  Composite c(name, {operand});
  const std::vector<std::int64_t> axes = spatial_axes(c);
  c.require(axes.size() == extents.size(),
            fmt::format("{} extents for {} spatial axes", extents.size(), axes.size()));
  Shape made = c[0].shape();
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const std::int64_t in = made[static_cast<int>(axes[a])];
    c.require(extents[a] >= 1 && in != 0,
              fmt::format("cannot make {} positions of {}", extents[a], in));
    c.require(extents[a] <= 4096,
              fmt::format("makes at most 4096 positions along an axis, not {}", extents[a]));
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
    const AdaptiveAxis along{c.rank(0), axis, in, out};
    Exprs parts;
    for (std::int64_t o = 0; o < out; ++o) {
      std::vector<std::int64_t> starts(static_cast<std::size_t>(c.rank(0)), 0),
          lengths(starts.size(), -1);
      starts[a + 1] = along.from(o);
      lengths[a + 1] = along.to(o) - along.from(o);
      parts.push_back(reduce(slice(x, starts, lengths), axis));
    }
    x = with_gradient(concat(parts, axis), {x},
                      [=](const Expr& dy, const Exprs& xs, const Expr& y) {
                        return Exprs{spread(along, dy, xs[0], y)};
                      });
  }
  return x;
}

// The space is there, as far as it is known.
std::vector<std::int64_t> space_of(const Composite& c) {
  const std::vector<std::int64_t> axes = spatial_axes(c);
  for (std::int64_t axis : axes)
    c.require(c[0].shape()[static_cast<int>(axis)] != 0,
              "there is no position in " + c[0].shape().text());
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
      "adaptive_avg_pool", x, extents,
      [](const Expr& part, std::int64_t axis) { return mean(part, {axis}, true); },
      [](const Expr& e, const Expr& is_in, std::int64_t axis) {
        Expr wide = widened_half(e), count = sum(cast(is_in, wide.dtype()), {axis});
        return cast(sum(where(is_in, wide, zeros_like(wide)), {axis}) / count, e.dtype());
      },
      [](const AdaptiveAxis& along, const Expr& dy, const Expr&, const Expr&) {
        return spread_means(along, dy);
      });
}
Expr adaptive_max_pool(Operand x, std::vector<std::int64_t> extents) {
  return adapted(
      "adaptive_max_pool", x, extents,
      [](const Expr& part, std::int64_t axis) { return reduce_max(part, {axis}, true); },
      [](const Expr& e, const Expr& is_in, std::int64_t axis) {
        // Elements outside a window are replaced by a value that changes no maximum (the least of
        // all for integers). It may be as large as the maximum, and gets no part of the gradient.
        const Expr inside = is_floating(e.dtype())
                                ? where(is_in, e, -INFINITY)
                                : where(is_in, e, reduce_min(stop_gradient(e), {axis}, true));
        return with_gradient(
            reduce_max(inside, {axis}), {e}, [=](const Expr& dy, const Exprs& xs, const Expr& y) {
              Expr is_top = logical_and(is_in, xs[0] == expand_dims(y, axis)),
                   wide = widened_half(dy), share = wide / sum(cast(is_top, wide.dtype()), {axis});
              return Exprs{cast(sum(where(is_top, expand_dims(share, axis), 0.0), {axis - 1}, true),
                                dy.dtype())};
            });
      },
      spread_tops);
}

}  // namespace troupe
