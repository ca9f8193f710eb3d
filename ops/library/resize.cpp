#include <troupe/functions.hpp>
#include <troupe/ops/composite.hpp>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace troupe {

/// x [batch, space..., channels] with the space made `extents`: each position takes the element under its centre. The space of x is known while
/// the graph is built.
TROUPE_DSL(Expr resize_nearest(Operand x, std::vector<std::int64_t> extents))
/// The same between the two nearest along each axis, by their distance from the position's centre; at the border the nearest alone.
TROUPE_DSL(Expr resize_linear(Operand x, std::vector<std::int64_t> extents))

namespace {

void require_resize(const Composite& c, const std::vector<std::int64_t>& extents) {
  c.require(c.rank(0) >= 3, "x must be [batch, space..., channels], not " + c[0].shape().text());
  c.require(static_cast<int>(extents.size()) == c.rank(0) - 2, fmt::format("{} extents for {} spatial axes", extents.size(), c.rank(0) - 2));
  for (std::size_t i = 0; i < extents.size(); ++i)
    c.require(extents[i] >= 1 && c.extent(0, static_cast<std::int64_t>(i) + 1) >= 1,
              fmt::format("cannot make {} positions of {}", extents[i], c.extent(0, static_cast<std::int64_t>(i) + 1)));
}

// Where the centre of position o of `out` lies among `in`.
double source(std::int64_t o, std::int64_t in, std::int64_t out) {
  return (static_cast<double>(o) + 0.5) * static_cast<double>(in) / static_cast<double>(out) - 0.5;
}

Expr indices(const Composite& c, const std::vector<std::int64_t>& of) {
  return c.reader().constant(Tensor::of(of, Shape{static_cast<std::int64_t>(of.size())}));
}

}  // namespace

Expr resize_nearest(Operand x, std::vector<std::int64_t> extents) {
  Composite c("resize_nearest", {x});
  require_resize(c, extents);
  Expr y = c[0];
  for (std::size_t a = 0; a < extents.size(); ++a) {
    const std::int64_t axis = static_cast<std::int64_t>(a) + 1, in = c.extent(0, axis);
    std::vector<std::int64_t> from;
    for (std::int64_t o = 0; o < extents[a]; ++o) from.push_back((2 * o + 1) * in / (2 * extents[a]));
    if (in != extents[a]) y = gather(y, indices(c, from), axis);
  }
  return y;
}

Expr resize_linear(Operand x, std::vector<std::int64_t> extents) {
  Composite c("resize_linear", {x});
  require_resize(c, extents);
  c.require(is_floating(c[0].dtype()), "needs a floating dtype");
  Expr y = c[0];
  for (std::size_t a = 0; a < extents.size(); ++a) {
    const std::int64_t axis = static_cast<std::int64_t>(a) + 1, in = c.extent(0, axis);
    if (in == extents[a]) continue;
    std::vector<std::int64_t> low, high;
    std::vector<double> part;
    for (std::int64_t o = 0; o < extents[a]; ++o) {
      const double at = std::clamp(source(o, in, extents[a]), 0.0, static_cast<double>(in - 1));
      low.push_back(static_cast<std::int64_t>(at));
      high.push_back(std::min(in - 1, low.back() + 1));
      part.push_back(at - static_cast<double>(low.back()));
    }
    Shape along(std::vector<std::int64_t>(static_cast<std::size_t>(c.rank(0)) - a - 1, 1));
    along.set(0, extents[a]);
    Expr weight = cast(c.reader().constant(Tensor::of(part, along)), y.dtype());
    Expr below = gather(y, indices(c, low), axis), above = gather(y, indices(c, high), axis);
    y = below + (above - below) * weight;
  }
  return y;
}

}  // namespace troupe
