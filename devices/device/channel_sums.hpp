// Sums for normalisation over rows of channels: two for each channel, in one read. Arguments of the
// primitive.
#pragma once

#include <troupe/devices/device/primitives.hpp>

namespace troupe::detail {

/// For each of `outer` blocks of rows and each column the mean and the variance of x; or, if dy is
/// given beside x, the sum of dy and that of dy (x - mean). Sums are taken in double. f32 is first
/// added four rows at a time in float, unless that overflows, over blocks that the shape decides.
/// The results stay in double: a variance is f32's if values spread by less than 1.8e19, and a mean
/// of a group is a mean of means. Without rows the moments are NaN, the sums 0.
struct ChannelSumsArgs {
  ConstView x;  // [outer, rows, n], f32 or f64
  // [outer, rows, n] and [outer, n], dtype of x; absent: the moments are requested
  ConstView dy, mean;
  View first, second;  // f64 [outer, n]: mean and variance, or the two sums
  std::int64_t outer, rows, n;
};

}  // namespace troupe::detail
