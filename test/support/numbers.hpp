// Helpers shared by the device tests: random tensors, elements as doubles, distances in units in
// the last place.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <troupe/devices/device/device.hpp>

namespace troupe::test {

inline Tensor from_doubles(DType type, const Shape& shape, const std::vector<double>& values) {
  Tensor t = Tensor::empty(type, shape);
  for (std::size_t i = 0; i < values.size(); ++i) {
    Tensor one = Tensor::scalar_as(type, values[i]);
    std::memcpy(static_cast<std::byte*>(t.raw_mutable()) + i * size_of(type), one.raw(),
                size_of(type));
  }
  return t;
}

/// Integers of any real dtype, or multiples of 1/8 within [low, high].
inline Tensor random_tensor(std::mt19937_64& random, DType type, const Shape& shape,
                            double low = -8, double high = 8) {
  std::uniform_real_distribution<double> draw(low, high);
  bool integral = is_integer(type);
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (double& v : values) {
    v = draw(random);
    v = integral ? std::trunc(v) : std::trunc(v * 8) / 8;
    if (integral && !is_signed_integer(type)) v = std::fabs(v);
    if (type == DType::boolean) v = v > (low + high) / 2;
  }
  return from_doubles(type, shape, values);
}

/// |value - expected| in units of f32's (or f64's) last place at `expected`; infinities and NaNs
/// must agree.
inline double ulps(DType type, double value, double expected) {
  if (std::isnan(value) || std::isnan(expected))
    return std::isnan(value) && std::isnan(expected) ? 0 : INFINITY;
  if (type == DType::f64) {
    if (value == expected) return 0;
    int e;
    std::frexp(expected, &e);
    return std::fabs(value - expected) / std::ldexp(1.0, std::max(e, -1021) - 53);
  }
  float nearest = static_cast<float>(expected);
  if (std::isinf(value) || std::isinf(nearest)) {
    if (value == nearest) return 0;
    return std::fabs(value) > 3.4e38 && std::fabs(expected) > 3.4e38 &&
                   (value > 0) == (expected > 0)
               ? 1
               : INFINITY;
  }
  int e;
  std::frexp(expected, &e);
  return std::fabs(value - expected) / std::ldexp(1.0, std::max(e, -125) - 24);
}

}  // namespace troupe::test
