#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>

#include <fmt/format.h>

namespace troupe {

/// Images [batch, h, w, c factor^2] as [batch, h factor, w factor, c]: channel c factor^2 + i
/// factor + j becomes the pixel i down and j right of its block (Shi et al., 2016).
TROUPE_DSL(Expr pixel_shuffle(Operand x, std::int64_t factor))
/// The inverse: blocks of factor x factor pixels as channels. Height and width are known.
TROUPE_DSL(Expr pixel_unshuffle(Operand x, std::int64_t factor))

namespace {

void require_images(const Composite& c, std::int64_t factor) {
  c.require(c.rank(0) == 4,
            "needs images [batch, height, width, channels], not " + c[0].shape().text());
  c.require(factor >= 1 && factor <= 1 << 15,
            fmt::format("the factor must be from 1 to 2^15, not {}", factor));
}

}  // namespace

Expr pixel_shuffle(Operand x, std::int64_t factor) {
  Composite c("pixel_shuffle", {x});
  require_images(c, factor);
  const std::int64_t channels = c.extent(0, 3), all = factor * factor;
  c.require(channels % all == 0, fmt::format("{} channels are no multiple of {}", channels, all));
  const Shape s = c[0].shape();
  const auto larger = [&](int axis) { return s[axis] < 0 ? kAny : s[axis] * factor; };
  const Expr apart = transpose(
      reshape(c[0], Shape{s[0], s[1], s[2], channels / all, factor, factor}), {0, 1, 4, 2, 5, 3});
  const Shape made{s[0], larger(1), larger(2), channels / all};
  if (made.is_known()) return reshape(apart, made);
  const auto vector = [&](const std::vector<std::int64_t>& v) {
    return c.reader().constant(Tensor::of(v, Shape{4}));
  };
  return reshape_to(
      apart, shape_of(c[0]) * vector({1, factor, factor, 0}) + vector({0, 0, 0, channels / all}),
      made);
}

Expr pixel_unshuffle(Operand x, std::int64_t factor) {
  Composite c("pixel_unshuffle", {x});
  require_images(c, factor);
  const std::int64_t batch = c[0].shape()[0], height = c.extent(0, 1), width = c.extent(0, 2),
                     channels = c.extent(0, 3);
  c.require(height % factor == 0 && width % factor == 0,
            fmt::format("{} x {} pixels have no blocks of {}", height, width, factor));
  const Expr apart =
      reshape(c[0], Shape{batch, height / factor, factor, width / factor, factor, channels});
  return reshape(transpose(apart, {0, 1, 3, 5, 2, 4}),
                 Shape{batch, height / factor, width / factor, channels * factor * factor});
}

}  // namespace troupe
