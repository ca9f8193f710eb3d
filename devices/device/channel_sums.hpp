// What normalisation over rows of channels adds up: two sums for each channel, in one read. What
// the primitive is called with.
#pragma once

#include <troupe/devices/device/primitives.hpp>

namespace troupe::detail {

/// For each of `outer` blocks of rows and each column the mean and the variance of x; or, of dy
/// beside x, the sum of dy and that of dy (x - mean). Added in double, f32 four rows at a time in
/// float first but where that overflows, over blocks that the shape decides, and left in double: a
/// variance is f32's where values spread by less than 1.8e19, and a mean of a group is one of
/// means. Of no rows the moments are NaN, the sums 0.
struct ChannelSumsArgs {
  ConstView x;  // [outer, rows, n], f32 or f64
  // [outer, rows, n] and [outer, n], as x; absent: the moments are asked for
  ConstView dy, mean;
  View first, second;  // f64 [outer, n]: mean and variance, or the two sums
  std::int64_t outer, rows, n;
};

}  // namespace troupe::detail
