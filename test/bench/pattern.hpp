// Numbers that every side of a comparison can make for itself, bit for bit: a linear congruential
// sequence (Knuth), scaled to [-scale/2, scale/2). scripts/peers/peer.py has the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <troupe/devices/tensor/tensor.hpp>

namespace troupe::bench {

inline std::vector<float> numbers(std::int64_t count, double scale, std::uint32_t seed) {
  std::vector<float> out(static_cast<std::size_t>(count));
  for (float& v : out) {
    seed = seed * 1664525u + 1013904223u;
    v = static_cast<float>((seed / 4294967296.0 - 0.5) * scale);
  }
  return out;
}

inline Tensor pattern(const Shape& shape, double scale, std::uint32_t seed) {
  return Tensor::of(numbers(shape.elements(), scale, seed), shape);
}

inline Tensor ones(const Shape& shape) {
  return Tensor::of(std::vector<float>(static_cast<std::size_t>(shape.elements()), 1.f), shape);
}

/// i64 in [0, classes), of the same sequence.
inline Tensor labels(std::int64_t count, std::int64_t classes, std::uint32_t seed) {
  std::vector<std::int64_t> out;
  for (const float v : numbers(count, 1, seed))
    out.push_back(std::clamp<std::int64_t>(
        static_cast<std::int64_t>((static_cast<double>(v) + 0.5) * static_cast<double>(classes)), 0,
        classes - 1));
  return Tensor::of(out, Shape{count});
}

}  // namespace troupe::bench
