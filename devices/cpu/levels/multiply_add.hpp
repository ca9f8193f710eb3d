// Shared code of product kernels: multiply-adds on packets, and tiles of rows whose number is known
// when they are compiled.
#pragma once

#include <troupe/devices/cpu/levels/packet.hpp>

#if defined(__FMA__)
#include <immintrin.h>
#endif

#define TROUPE_INLINE inline __attribute__((always_inline))

namespace troupe::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int kRegisters = 32;
TROUPE_INLINE Floats repeated(float x) { return _mm512_set1_ps(x); }
TROUPE_INLINE Floats add_product(Floats x, Floats y, Floats sum) {
  return _mm512_fmadd_ps(x, y, sum);
}
#elif defined(__FMA__)
constexpr int kRegisters = 16;
TROUPE_INLINE Floats repeated(float x) { return _mm256_set1_ps(x); }
TROUPE_INLINE Floats add_product(Floats x, Floats y, Floats sum) {
  return _mm256_fmadd_ps(x, y, sum);
}
#else
constexpr int kRegisters = 16;
TROUPE_INLINE Floats repeated(float x) { return x - Floats{}; }
TROUPE_INLINE Floats add_product(Floats x, Floats y, Floats sum) { return sum + x * y; }
#endif

/// sum[r] = the row r of a, k long, times a panel of `across` packets of columns, in the order of
/// k. Rows lie `row_step` apart, elements of a row `k_step`, rows of the panel `panel_step`.
template <int rows, int across>
TROUPE_INLINE void multiply(Floats (&sum)[rows][across], const float* a, std::int64_t row_step,
                            std::int64_t k_step, const float* panel, std::int64_t k,
                            std::int64_t panel_step = across * kPacket) {
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int p = 0; p < across; ++p) sum[r][p] = Floats{};
  for (std::int64_t i = 0; i < k; ++i, a += k_step, panel += panel_step) {
    // packed rows come from the second cache
    if (row_step == 1) __builtin_prefetch(a + 8 * k_step);
    Floats b[across];
#pragma GCC unroll 4
    for (int p = 0; p < across; ++p) b[p] = load_floats(panel + p * kPacket);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const Floats x = repeated(a[r * row_step]);
#pragma GCC unroll 4
      for (int p = 0; p < across; ++p) sum[r][p] = add_product(x, b[p], sum[r][p]);
    }
  }
}

// A packet of which `n` elements are there; `whole`: all are.
template <bool whole>
TROUPE_INLINE Floats load_part(const float* x, std::int64_t n) {
  if (whole) return load_floats(x);
  Floats v = {};
  __builtin_memcpy(&v, x, static_cast<std::size_t>(n) * sizeof(float));
  return v;
}
template <bool whole>
TROUPE_INLINE void store_part(float* to, Floats v, std::int64_t n) {
  if (whole) return store(to, v);
  __builtin_memcpy(to, &v, static_cast<std::size_t>(n) * sizeof(float));
}

/// Calls f(number of rows, as a type; first row) for tiles of at most `most` rows, all of nearly
/// one size.
template <int n>
struct Count {
  static constexpr int value = n;
};
template <int most, class F>
void for_tiles(std::int64_t rows, F f) {
  const std::int64_t tiles = (rows + most - 1) / most;
  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::int64_t row = t * rows / tiles, count = (t + 1) * rows / tiles - row;
    if (count == 1) f(Count<1>(), row);
    if constexpr (most >= 2)
      if (count == 2) f(Count<2>(), row);
    if constexpr (most >= 3)
      if (count == 3) f(Count<3>(), row);
    if constexpr (most >= 4)
      if (count == 4) f(Count<4>(), row);
    if constexpr (most >= 5)
      if (count == 5) f(Count<5>(), row);
    if constexpr (most >= 6)
      if (count == 6) f(Count<6>(), row);
    if constexpr (most >= 7)
      if (count == 7) f(Count<7>(), row);
    if constexpr (most >= 8)
      if (count == 8) f(Count<8>(), row);
  }
}

}  // namespace
}  // namespace troupe::cpu
