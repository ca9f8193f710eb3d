// Rows brought to mean 0 and variance 1 (Ba et al., Layer Normalization, 2016) or to mean square 1
// (Zhang and Sennrich, Root Mean Square Layer Normalization, 2019), in one pass each way. Arguments
// of the primitives.
#pragma once

#include <troupe/devices/device/primitives.hpp>

namespace troupe::detail {

/// y = (x - mean) * rstd * scale + bias, row by row, with rstd = 1 / sqrt(variance + epsilon); not
/// centered: y = x * rstd * scale, with rstd of the mean square. Means are taken in double. f32 is
/// first added four elements at a time in float, if that does not overflow. If rows have no
/// elements, mean and rstd are NaN.
struct RowNormArgs {
  ConstView x;            // [rows, n]
  ConstView scale, bias;  // [n], or one element for all; bias only if centered
  View y;                 // [rows, n]; may be the buffer of x
  View mean, rstd;        // [rows] f32, f64 for f64; mean only if centered
  std::int64_t rows, n;
  double epsilon;
  bool centered;
};

/// The gradients with respect to x, scale and bias, from x, scale, mean, rstd and dy. The gradients
/// of scale and bias are sums over the rows, in double, over blocks that the shape decides. With g
/// = dy * scale and h = (x - mean) * rstd: dx = rstd * (g - mean of g - h * mean of g h).
struct RowNormGradientArgs {
  ConstView x, scale, mean, rstd, dy;
  View dx;             // [rows, n]; may be the buffer of dy
  View dscale, dbias;  // [n]; dbias only if centered
  std::int64_t rows, n;
  bool centered;
};

}  // namespace troupe::detail
