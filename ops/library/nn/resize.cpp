#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/reader.hpp>

#include <fmt/format.h>

namespace troupe {

/// x [batch, space..., channels] with the space made `extents`: each position takes the element
/// under its centre.
TROUPE_DSL(Expr resize_nearest(Operand x, std::vector<std::int64_t> extents))
/// x resized by interpolation between the two nearest elements along each axis, by their distance
/// from the position's centre; at the border the nearest alone. With `align_corners` the first and
/// last positions stand on the first and last elements, and the others evenly between.
TROUPE_DSL(Expr resize_linear(Operand x, std::vector<std::int64_t> extents,
                              bool align_corners = false))
/// x resized from the four nearest elements, by Keys's cubic convolution (1981) with a = -0.75; the
/// border's elements stand for those beyond.
TROUPE_DSL(Expr resize_cubic(Operand x, std::vector<std::int64_t> extents,
                             bool align_corners = false))

namespace {

// Extents that are not known yet are taken from the input when it runs.
void require_resize(const Composite& c, const std::vector<std::int64_t>& extents) {
  c.require(c.rank(0) >= 3, "x must be [batch, space..., channels], not " + c[0].shape().text());
  c.require(static_cast<int>(extents.size()) == c.rank(0) - 2,
            fmt::format("{} extents for {} spatial axes", extents.size(), c.rank(0) - 2));
  Shape made = c[0].shape();
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const int axis = static_cast<int>(i) + 1;
    c.require(extents[i] >= 1 && made[axis] != 0,
              fmt::format("cannot make {} positions of {}", extents[i], made[axis]));
    made.set(axis, extents[i]);
  }
  c.require_fits(made);
}

// The extent of x along an axis, in elements of a vector of one.
Expr extent_of(const Composite& c, int axis) {
  const std::int64_t known = c[0].shape()[axis];
  return known >= 0 ? c.reader().constant(Tensor::of<std::int64_t>({known}, {1}))
                    : slice(shape_of(c[0]), {axis}, {1});
}

Expr numbers(const Composite& c, std::int64_t n) {
  return c.reader().bind(find_op("Range"), {}, Attrs{{"count", n}}, Site())[0];
}

// Returns the location of each of n positions among the elements along an axis: f64 [n].
Expr places_along(const Composite& c, int axis, std::int64_t n, bool align_corners) {
  Expr o = cast(numbers(c, n), DType::f64), in = cast(extent_of(c, axis), DType::f64);
  if (!align_corners) return (o + 0.5) * in / static_cast<double>(n) - 0.5;
  return n == 1 ? o : o * (in - 1.0) / static_cast<double>(n - 1);
}

// x with each axis of its space interpolated by `make(x so far, its axis, places along it, the last
// element, a shape for one number a position)`.
template <class Make>
Expr interpolated(const char* name, Operand x, const std::vector<std::int64_t>& extents,
                  bool align_corners, Make make) {
  Composite c(name, {x});
  require_resize(c, extents);
  c.require_floating(0);
  Expr y = widened_half(c[0]);
  for (std::size_t a = 0; a < extents.size(); ++a) {
    const int axis = static_cast<int>(a) + 1;
    if (c[0].shape()[axis] == extents[a]) continue;
    Shape along(std::vector<std::int64_t>(static_cast<std::size_t>(c.rank(0)) - a - 1, 1));
    along.set(0, extents[a]);
    y = make(y, axis, places_along(c, axis, extents[a], align_corners), extent_of(c, axis) - 1,
             along);
  }
  return cast(y, c[0].dtype());
}

}  // namespace

Expr resize_nearest(Operand x, std::vector<std::int64_t> extents) {
  Composite c("resize_nearest", {x});
  require_resize(c, extents);
  Expr y = c[0];
  for (std::size_t a = 0; a < extents.size(); ++a) {
    const int axis = static_cast<int>(a) + 1;
    if (c[0].shape()[axis] == extents[a]) continue;
    y = gather(y, floor_div((2 * numbers(c, extents[a]) + 1) * extent_of(c, axis), 2 * extents[a]),
               axis);
  }
  return y;
}

Expr resize_linear(Operand x, std::vector<std::int64_t> extents, bool align_corners) {
  return interpolated(
      "resize_linear", x, extents, align_corners,
      [](const Expr& y, int axis, const Expr& places, const Expr& last, const Shape& along) {
        Expr at = minimum(maximum(places, 0.0), cast(last, DType::f64)), low = cast(at, DType::i64),
             high = minimum(low + 1, last);
        Expr weight = cast(reshape(at - cast(low, DType::f64), along), y.dtype());
        Expr below = gather(y, low, axis), above = gather(y, high, axis);
        return below + (above - below) * weight;
      });
}

Expr resize_cubic(Operand x, std::vector<std::int64_t> extents, bool align_corners) {
  return interpolated(
      "resize_cubic", x, extents, align_corners,
      [](const Expr& y, int axis, const Expr& places, const Expr& last, const Shape& along) {
        constexpr double a = -0.75;
        // the weight of an element less than one away
        const auto near = [](const Expr& d) { return ((a + 2) * d - (a + 3)) * square(d) + 1.0; };
        // the weight of an element less than two away
        const auto far = [](const Expr& d) { return a * (((d - 5.0) * d + 8.0) * d - 4.0); };
        Expr low = floor(places), t = places - low, first = cast(low, DType::i64) - 1;
        const Expr weights[] = {far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)};
        Expr sum;
        for (int k = 0; k < 4; ++k) {
          Expr part = gather(y, minimum(maximum(first + k, 0), last), axis) *
                      cast(reshape(weights[k], along), y.dtype());
          sum = k ? sum + part : part;
        }
        return sum;
      });
}

}  // namespace troupe
