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
  Shape parts(c[0].shape().dims().subspan(0, static_cast<std::size_t>(c.rank(0) - 1)));
  Expr wide = widened_half(c[0]);
  const auto scaled = [&](const Expr& y) { return cast(y * widened_half(c[1]) + widened_half(c[2]), c[0].dtype()); };
  if (std::count(parts.begin(), parts.end(), kAny) > 1) {
    // The space cannot be named in a reshape: means over it first, and over the channels of each group, all equally many, then.
    Shape item(std::vector<std::int64_t>(static_cast<std::size_t>(c.rank(0)), 1));
    item.set(0, kAny);
    item.set(c.rank(0) - 1, channels);
    Shape apart = item, ones(std::vector<std::int64_t>(static_cast<std::size_t>(c.rank(0)) + 1, 1));
    apart.set(c.rank(0) - 1, groups);
    apart.push_back(channels / groups);
    ones.set(c.rank(0), channels / groups);
    const auto mean_of_groups = [&](const Expr& e) {
      Expr means = mean(reshape(mean(e, axes_between(1, c.rank(0) - 1), true), apart), {-1}, true);
      return reshape(means + c.reader().zeros(e.dtype(), ones), item);
    };
    Expr off = wide - mean_of_groups(wide);
    return scaled(off * rsqrt(mean_of_groups(square(off)) + epsilon));
  }
  parts.push_back(groups);
  parts.push_back(channels / groups);
  Axes axes = axes_between(1, c.rank(0) - 1);
  axes.push_back(c.rank(0));
  return scaled(reshape_like(normalized(reshape(wide, parts), axes, epsilon), wide));
}

Expr instance_norm(Operand x, Operand scale, Operand bias, double epsilon) {
  Composite c("instance_norm", {x, scale, bias});
  require_channels(c, 1, epsilon);
  c.require(c.rank(0) >= 3, "x must be [batch, space..., channels], not " + c[0].shape().text());
  return cast(normalized(widened_half(c[0]), axes_between(1, c.rank(0) - 1), epsilon) * widened_half(c[1]) + widened_half(c[2]), c[0].dtype());
}

}  // namespace troupe
