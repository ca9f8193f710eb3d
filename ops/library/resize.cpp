#include <troupe/functions.hpp>
#include <troupe/ops/composite.hpp>
#include <troupe/ops/op.hpp>
#include <troupe/ops/reader.hpp>

#include <fmt/format.h>

namespace troupe {

/// x [batch, space..., channels] with the space made `extents`: each position takes the element under its centre.
TROUPE_DSL(Expr resize_nearest(Operand x, std::vector<std::int64_t> extents))
/// The same between the two nearest along each axis, by their distance from the position's centre; at the border the nearest alone.
TROUPE_DSL(Expr resize_linear(Operand x, std::vector<std::int64_t> extents))

namespace {

// Extents that are not known yet are asked of the input when it runs.
void require_resize(const Composite& c, const std::vector<std::int64_t>& extents) {
  c.require(c.rank(0) >= 3, "x must be [batch, space..., channels], not " + c[0].shape().text());
  c.require(static_cast<int>(extents.size()) == c.rank(0) - 2, fmt::format("{} extents for {} spatial axes", extents.size(), c.rank(0) - 2));
  Shape made = c[0].shape();
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const int axis = static_cast<int>(i) + 1;
    c.require(extents[i] >= 1 && made[axis] != 0, fmt::format("cannot make {} positions of {}", extents[i], made[axis]));
    made.set(axis, extents[i]);
  }
  c.require_fits(made);
}

// The extent of x along an axis, in elements of a vector of one.
Expr extent_of(const Composite& c, int axis) {
  const std::int64_t known = c[0].shape()[axis];
  return known >= 0 ? c.reader().constant(Tensor::of<std::int64_t>({known}, {1})) : slice(shape_of(c[0]), {axis}, {1});
}

Expr numbers(const Composite& c, std::int64_t n) { return c.reader().bind(find_op("Range"), {}, Attrs{{"count", n}}, Site())[0]; }

}  // namespace

Expr resize_nearest(Operand x, std::vector<std::int64_t> extents) {
  Composite c("resize_nearest", {x});
  require_resize(c, extents);
  Expr y = c[0];
  for (std::size_t a = 0; a < extents.size(); ++a) {
    const int axis = static_cast<int>(a) + 1;
    if (c[0].shape()[axis] == extents[a]) continue;
    y = gather(y, floor_div((2 * numbers(c, extents[a]) + 1) * extent_of(c, axis), 2 * extents[a]), axis);
  }
  return y;
}

Expr resize_linear(Operand x, std::vector<std::int64_t> extents) {
  Composite c("resize_linear", {x});
  require_resize(c, extents);
  c.require(is_floating(c[0].dtype()), "needs a floating dtype");
  Expr y = widened_half(c[0]);
  for (std::size_t a = 0; a < extents.size(); ++a) {
    const int axis = static_cast<int>(a) + 1;
    if (c[0].shape()[axis] == extents[a]) continue;
    // Where the centre of each position lies among those there are.
    Expr in = extent_of(c, axis), last = in - 1, wide = cast(in, DType::f64);
    Expr centre = (cast(numbers(c, extents[a]), DType::f64) + 0.5) * wide / static_cast<double>(extents[a]) - 0.5;
    Expr at = minimum(maximum(centre, 0.0), cast(last, DType::f64)), low = cast(at, DType::i64), high = minimum(low + 1, last);
    Shape along(std::vector<std::int64_t>(static_cast<std::size_t>(c.rank(0)) - a - 1, 1));
    along.set(0, extents[a]);
    Expr weight = cast(reshape(at - cast(low, DType::f64), along), y.dtype());
    Expr below = gather(y, low, axis), above = gather(y, high, axis);
    y = below + (above - below) * weight;
  }
  return cast(y, c[0].dtype());
}

}  // namespace troupe
