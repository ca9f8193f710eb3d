#include <troupe/functions.hpp>
#include <troupe/ops/composite.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace troupe {

// Those over rows are ops: layer_norm.cpp, rms_norm.cpp. These are made of reductions and pointwise ops, which fuse; means are taken in
// double, and variances of what is left when the mean is gone. f16 and bf16 are computed with in f32.

/// Training: x [..., channels] brought to mean 0 and variance 1 over all axes but the last, times `scale`, plus `bias`. Also the mean and the
/// variance, [channels], for running averages, which the caller keeps.
TROUPE_DSL(Exprs batch_norm(Operand x, Operand scale, Operand bias, double epsilon = 1e-5))
/// Inference: the same with a mean and a variance that are given, [channels].
TROUPE_DSL(Expr batch_norm_with(Operand x, Operand scale, Operand bias, Operand mean, Operand variance, double epsilon = 1e-5))
/// x [batch, space..., channels] brought to mean 0 and variance 1 over the space of each group of channels of each item. The channels are known.
TROUPE_DSL(Expr group_norm(Operand x, std::int64_t groups, Operand scale, Operand bias, double epsilon = 1e-5))
/// The same for each channel by itself.
TROUPE_DSL(Expr instance_norm(Operand x, Operand scale, Operand bias, double epsilon = 1e-5))

namespace {

using Axes = std::vector<std::int64_t>;

Axes axes_between(int first, int end) {
  Axes axes(static_cast<std::size_t>(std::max(0, end - first)));
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

// The channels' parameters fit, as far as extents are known.
void require_channels(const Composite& c, std::size_t first, double epsilon) {
  c.require(epsilon >= 0 && std::isfinite(epsilon), fmt::format("epsilon must be finite and at least 0, not {}", epsilon));
  c.require(is_floating(c[0].dtype()), "needs a floating dtype");
  c.require(c.rank(0) >= 1, "a scalar has no channels");
  const std::int64_t channels = c[0].shape()[c.rank(0) - 1];
  for (std::size_t i = first; i <= first + 3; ++i) {
    if (i >= c.operands()) break;
    const Shape s = c[i].shape();
    c.require(c[i].dtype() == c[0].dtype() || (c[i].dtype() == DType::f32 && size_of(c[0].dtype()) == 2), fmt::format("parameters are {}, but x {}", name_of(c[i].dtype()), name_of(c[0].dtype())));
    c.require(!s.has_rank() || s.rank() == 0 || (s.rank() == 1 && (s[0] < 0 || channels < 0 || s[0] == channels)),
              fmt::format("parameters are of shape [{}], not {}", channels, s.text()));
  }
}

Expr normalized(const Expr& x, const Axes& axes, double epsilon) {
  Expr centered = x - mean(x, axes, true);
  return centered * rsqrt(mean(square(centered), axes, true) + epsilon);
}

}  // namespace

Exprs batch_norm(Operand x, Operand scale, Operand bias, double epsilon) {
  Composite c("batch_norm", {x, scale, bias});
  require_channels(c, 1, epsilon);
  c.require(c.rank(0) >= 2, "x must be [..., channels], not " + c[0].shape().text());
  const Axes axes = axes_between(0, c.rank(0) - 1);
  const DType type = c[0].dtype();
  Expr x_wide = widened_half(c[0]), center = mean(x_wide, axes), centered = x_wide - center, spread = mean(square(centered), axes);
  return {cast(centered * (rsqrt(spread + epsilon) * widened_half(c[1])) + widened_half(c[2]), type), cast(center, type), cast(spread, type)};
}

Expr batch_norm_with(Operand x, Operand scale, Operand bias, Operand mean, Operand variance, double epsilon) {
  Composite c("batch_norm_with", {x, scale, bias, mean, variance});
  require_channels(c, 1, epsilon);
  Expr factor = rsqrt(widened_half(c[4]) + epsilon) * widened_half(c[1]);
  return cast(widened_half(c[0]) * factor + (widened_half(c[2]) - widened_half(c[3]) * factor), c[0].dtype());
}

Expr group_norm(Operand x, std::int64_t groups, Operand scale, Operand bias, double epsilon) {
  Composite c("group_norm", {x, scale, bias});
  require_channels(c, 1, epsilon);
  c.require(c.rank(0) >= 2, "x must be [batch, space..., channels], not " + c[0].shape().text());
  const std::int64_t channels = c.extent(0, -1);
  c.require(groups >= 1 && channels % groups == 0, fmt::format("{} channels do not divide into {} groups", channels, groups));
  // Moments of channels first, then of the few of a group: what is done to all of x sees whole rows of channels, and the space need not be known.
  const Shape extents = c[0].shape();
  Shape parts{extents[0]}, channel{extents[0]};
  for (int i = 1; i < c.rank(0) - 1; ++i) {
    parts.push_back(1);
    channel.push_back(1);
  }
  parts.push_back(groups);
  parts.push_back(channels / groups);
  channel.push_back(channels);
  const Axes space = axes_between(1, c.rank(0) - 1);
  auto of_group = [&](const Expr& v) {
    const Expr apart = reshape(space.empty() ? v : mean(v, space, true), parts);
    return reshape(broadcast_like(mean(apart, {-1}, true), apart), channel);
  };
  const Expr wide = widened_half(c[0]), centered = wide - of_group(wide);
  return cast(centered * (rsqrt(of_group(square(centered)) + epsilon) * widened_half(c[1])) + widened_half(c[2]), c[0].dtype());
}

Expr instance_norm(Operand x, Operand scale, Operand bias, double epsilon) {
  Composite c("instance_norm", {x, scale, bias});
  require_channels(c, 1, epsilon);
  c.require(c.rank(0) >= 3, "x must be [batch, space..., channels], not " + c[0].shape().text());
  return cast(normalized(widened_half(c[0]), axes_between(1, c.rank(0) - 1), epsilon) * widened_half(c[1]) + widened_half(c[2]), c[0].dtype());
}

}  // namespace troupe
