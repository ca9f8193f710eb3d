#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/custom_gradient.hpp>

#include <cmath>
#include <numeric>
#include <vector>

#include <fmt/format.h>

namespace troupe {

// Normalisations over rows are ops: layer_norm.cpp, rms_norm.cpp. The functions here read x once
// for its moments (channel_sums.cpp) and once for pointwise ops, which fuse with their neighbours.
// Their gradient reads x once for two sums, and once more. f16 and bf16 are computed in f32, the
// few numbers of a channel in f64: the variance of a spread above 1.8e19 overflows f32, and a
// group's means that are far from 0 and near each other lose their digits.

/// Training: x [..., channels] brought to mean 0 and variance 1 over all axes but the last, times
/// `scale`, plus `bias`. Also the mean and the variance, [channels], for running averages, which
/// the caller keeps.
TROUPE_DSL(Exprs batch_norm(Operand x, Operand scale, Operand bias, double epsilon = 1e-5))
/// Inference: batch_norm with a given mean and variance, [channels].
TROUPE_DSL(Expr batch_norm_with(Operand x, Operand scale, Operand bias, Operand mean,
                                Operand variance, double epsilon = 1e-5))
/// x [batch, space..., channels] brought to mean 0 and variance 1 over the space of each group of
/// channels of each item. The channels are known.
TROUPE_DSL(Expr group_norm(Operand x, std::int64_t groups, Operand scale, Operand bias,
                           double epsilon = 1e-5))
/// group_norm with each channel as its own group.
TROUPE_DSL(Expr instance_norm(Operand x, Operand scale, Operand bias, double epsilon = 1e-5))

namespace {

// The channels' parameters fit, as far as extents are known.
void require_channels(const Composite& c, std::size_t first, double epsilon) {
  c.require(epsilon >= 0 && std::isfinite(epsilon),
            fmt::format("epsilon must be finite and at least 0, not {}", epsilon));
  c.require_floating(0);
  c.require(c.rank(0) >= 1, "a scalar has no channels");
  const std::int64_t channels = c[0].shape()[c.rank(0) - 1];
  for (std::size_t i = first; i <= first + 3; ++i) {
    if (i >= c.operands()) break;
    const Shape s = c[i].shape();
    c.require(
        c[i].dtype() == c[0].dtype() || (c[i].dtype() == DType::f32 && size_of(c[0].dtype()) == 2),
        fmt::format("parameters are {}, but x {}", name_of(c[i].dtype()), name_of(c[0].dtype())));
    c.require(!s.has_rank() || s.rank() == 0 ||
                  (s.rank() == 1 && (s[0] < 0 || channels < 0 || s[0] == channels)),
              fmt::format("parameters are of shape [{}], not {}", channels, s.text()));
  }
}

// Returns a parameter, one for each channel or one for all; an unknown number of channels is
// compared when it runs.
Expr of_channels(const Composite& c, std::size_t i) {
  const Shape s = c[i].shape();
  return s.has_rank() && s.rank() == 1
             ? c.with_extent(c[i], 0, c[0], c.rank(0) - 1, "the number of channels")
             : c[i];
}

Exprs moments_of_channels(const Expr& x, bool by_item) {
  return bind_op("ChannelMoments", {x}, Attrs{{"by_item", by_item}});
}

// (x - mean) factor + bias, with a mean and a factor, f64, for each channel, by item or of all
// items. x's dtype loses digits of the mean, which are added to the bias. The sums of its gradients
// are made in one read.
Expr scaled_channels(const Expr& x, const Expr& mean, const Expr& factor, const Expr& bias,
                     bool by_item) {
  const DType type = x.dtype();
  auto lost = [](const Expr& kept, const Expr& whole) { return cast(kept, DType::f64) - whole; };
  const Expr near = cast(mean, type),
             rest = type == DType::f64
                        ? bias
                        : cast(cast(bias, DType::f64) + lost(near, mean) * factor, type);
  return with_gradient(
      (x - near) * cast(factor, type) + rest, {x, mean, factor, bias},
      [=](const Expr& dy, const Exprs& xs, const Expr&) {
        const Expr at = cast(xs[1], type);
        const Exprs sums = bind_op("ChannelSums", {dy, xs[0], at}, Attrs{{"by_item", by_item}});
        const Expr of_factor = type == DType::f64 ? sums[1] : sums[1] + sums[0] * lost(at, xs[1]);
        return Exprs{dy * cast(xs[2], type), -(sums[0] * xs[2]), of_factor,
                     cast(sum_to(sums[0], xs[3]), xs[3].dtype())};
      });
}

// x in units of a power of two, in which no square is lost or infinite. Moments are in these units.
struct InUnits {
  Expr x, unit;  // x times unit; an empty unit is 1
  double epsilon;

  Expr factor_of(const Expr& variance, const Expr& scale) const {
    const Expr least = unit.is_empty() ? Expr() : square(unit * std::sqrt(epsilon));
    return rsqrt(least.is_empty() ? variance + epsilon : variance + least) *
           cast(scale, DType::f64);
  }
  Expr mean_of(const Expr& mean) const { return unit.is_empty() ? mean : mean / unit; }
  Expr variance_of(const Expr& variance) const {
    return unit.is_empty() ? variance : variance / unit / unit;
  }
};

// `sizes_of` adds up numbers over the elements that are normalised together; its result broadcasts
// to x. Moments can represent large squares of f32, but lose small ones, which count if epsilon is
// small too. Squares of f64 may be lost either way.
template <class Sizes>
InUnits in_units(const Expr& x, double epsilon, Sizes sizes_of) {
  const bool is_wide = x.dtype() == DType::f64;
  if (!is_wide && epsilon >= 0x1p-80) return {x, {}, epsilon};
  const Expr sizes = maximum(cast(sizes_of(abs(stop_gradient(x))), DType::f64), std::sqrt(epsilon));
  const Expr one = ones_like(sizes), unit = is_wide ? where(sizes < 0x1p-400, 0x1p600,
                                                            where(sizes > 0x1p400, 0x1p-600, one))
                                                    : where(sizes < 0x1p-40, 0x1p80, one);
  return {x * cast(unit, x.dtype()), unit, epsilon};
}

std::vector<std::int64_t> axes_between(int first, int last) {
  std::vector<std::int64_t> axes(static_cast<std::size_t>(last - first));
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

}  // namespace

Exprs batch_norm(Operand x, Operand scale, Operand bias, double epsilon) {
  Composite c("batch_norm", {x, scale, bias});
  require_channels(c, 1, epsilon);
  c.require(c.rank(0) >= 2, "x must be [..., channels], not " + c[0].shape().text());
  const DType type = c[0].dtype();
  const InUnits in = in_units(widened_half(c[0]), epsilon, [&](const Expr& sizes) {
    return sum(sizes, axes_between(0, c.rank(0) - 1));
  });
  const Exprs moments = moments_of_channels(in.x, false);
  const Expr factor = in.factor_of(moments[1], of_channels(c, 1));
  return {
      cast(scaled_channels(in.x, moments[0], factor, widened_half(of_channels(c, 2)), false), type),
      cast(in.mean_of(moments[0]), type), cast(in.variance_of(moments[1]), type)};
}

Expr batch_norm_with(Operand x, Operand scale, Operand bias, Operand mean, Operand variance,
                     double epsilon) {
  Composite c("batch_norm_with", {x, scale, bias, mean, variance});
  require_channels(c, 1, epsilon);
  const auto wide = [&](std::size_t i) { return widened_half(of_channels(c, i)); };
  Expr factor = rsqrt(wide(4) + epsilon) * wide(1);
  return cast(widened_half(c[0]) * factor + (wide(2) - wide(3) * factor), c[0].dtype());
}

Expr group_norm(Operand x, std::int64_t groups, Operand scale, Operand bias, double epsilon) {
  Composite c("group_norm", {x, scale, bias});
  require_channels(c, 1, epsilon);
  c.require(c.rank(0) >= 2, "x must be [batch, space..., channels], not " + c[0].shape().text());
  const std::int64_t channels = c.extent(0, -1);
  c.require(groups >= 1 && channels % groups == 0,
            fmt::format("{} channels do not divide into {} groups", channels, groups));
  // Moments of channels first, then of a group's few channels: a group's variance is the variance
  // within channels plus that between them. So ops on all of x read whole rows of channels, and the
  // space need not be known.
  const Shape extents = c[0].shape();
  Shape parts{extents[0]}, channel{extents[0]};
  for (int i = 1; i < c.rank(0) - 1; ++i) {
    parts.push_back(1);
    channel.push_back(1);
  }
  parts.push_back(groups);
  parts.push_back(channels / groups);
  channel.push_back(channels);
  const InUnits in = in_units(widened_half(c[0]), epsilon, [&](const Expr& sizes) {
    const Expr each = reshape(sum(sizes, axes_between(1, c.rank(0) - 1), true), parts);
    return reshape(broadcast_like(sum(each, {-1}, true), each), channel);
  });
  const Exprs moments = moments_of_channels(in.x, true);
  const Expr means = reshape(moments[0], parts), center = mean(means, {-1}, true),
             spread = mean(reshape(moments[1], parts) + square(means - center), {-1}, true);
  auto for_channels = [&](const Expr& v) { return reshape(broadcast_like(v, means), channel); };
  const Expr factor = in.factor_of(for_channels(spread), of_channels(c, 1));
  return cast(
      scaled_channels(in.x, for_channels(center), factor, widened_half(of_channels(c, 2)), true),
      c[0].dtype());
}

Expr instance_norm(Operand x, Operand scale, Operand bias, double epsilon) {
  Composite c("instance_norm", {x, scale, bias});
  require_channels(c, 1, epsilon);
  c.require(c.rank(0) >= 3, "x must be [batch, space..., channels], not " + c[0].shape().text());
  const InUnits in = in_units(widened_half(c[0]), epsilon, [&](const Expr& sizes) {
    return sum(sizes, axes_between(1, c.rank(0) - 1), true);
  });
  const Exprs moments = moments_of_channels(in.x, true);
  return cast(scaled_channels(in.x, moments[0], in.factor_of(moments[1], of_channels(c, 1)),
                              widened_half(of_channels(c, 2)), true),
              c[0].dtype());
}

}  // namespace troupe
