// Matrix products so small that their order of summation is part of the interface: code that takes
// such a product apart, element by element, has the bits of the CPU's `matmul`.
//
// An element of a tiny product of f32 or f64 is its first product, to which each further one is
// added in the order of the inner axis: rounded once at a level with fused multiply-adds, v3 and
// v4, else twice.
#pragma once

#include <cstdint>

#include <troupe/devices/base/internal.hpp>

namespace troupe::detail {

/// True if a product [m, k] [k, n] is tiny. Each level's kernels have a copy of their own.
[[maybe_unused]] static constexpr bool is_tiny_product(std::int64_t m, std::int64_t n,
                                                       std::int64_t k) {
  constexpr std::int64_t kInner = 16, kElements = 64, kMultiplications = 256;
  return k > 0 && k <= kInner && m <= kElements && n <= kElements && m * n <= kElements &&
         m * n * k <= kMultiplications;
}

}  // namespace troupe::detail
