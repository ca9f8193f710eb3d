// Random words and draws from them, many at a time (random.cpp defines which word belongs to which
// element).
#include <troupe/devices/cpu/levels/lanes.hpp>

#if defined(__SSE2__) && !defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace troupe::cpu {
namespace {

typedef std::uint64_t Words __attribute__((vector_size(kPacketBytes)));  // 32 bits in each 64

/// The lower halves multiplied into 64 bits.
inline Words product(Words x, std::uint32_t y) {
  const Words all = Words{} + y;
#if defined(__AVX512F__)
  return reinterpret_cast<Words>(
      _mm512_mul_epu32(reinterpret_cast<__m512i>(x), reinterpret_cast<__m512i>(all)));
#elif defined(__AVX2__)
  return reinterpret_cast<Words>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(x), reinterpret_cast<__m256i>(all)));
#elif defined(__SSE2__)
  return reinterpret_cast<Words>(
      _mm_mul_epu32(reinterpret_cast<__m128i>(x), reinterpret_cast<__m128i>(all)));
#else
  return (x & 0xFFFFFFFF) * all;
#endif
}

// Philox4x32-10 as in devices/device/philox.hpp. Upper halves hold anything on the way: products do
// not look at them.
void philox(std::uint32_t* words, const std::uint32_t* key, std::uint64_t block,
            std::int64_t blocks) {
  Words lane;
  for (int l = 0; l < kWide; ++l) lane[l] = static_cast<std::uint64_t>(l);
  for (std::int64_t b = 0; b < blocks; b += kWide) {
    const Words index = lane + (block + static_cast<std::uint64_t>(b));
    Words c0 = index, c1 = index >> 32, c2 = {}, c3 = Words{} + key[2];
    std::uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; ++round) {
      const Words p0 = product(c0, 0xD2511F53), p1 = product(c2, 0xCD9E8D57);
      c0 = (p1 >> 32) ^ c1 ^ k0;
      c1 = p1;
      c2 = (p0 >> 32) ^ c3 ^ k1;
      c3 = p0;
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    const Words first = (c0 & 0xFFFFFFFF) | c1 << 32, second = (c2 & 0xFFFFFFFF) | c3 << 32;
    const std::int64_t count = blocks - b < kWide ? blocks - b : kWide;
    for (std::int64_t l = 0; l < count; ++l) {
      const std::uint64_t pair[2] = {first[l], second[l]};
      __builtin_memcpy(words + 4 * (b + l), pair, sizeof pair);
    }
  }
}

void uniform(float* out, const std::uint32_t* words, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i)
    out[i] = static_cast<float>(static_cast<std::int32_t>(words[i] >> 8)) * 0x1p-24f;
}

/// Converts integers below 2^52.
inline Doubles doubles_of(Words x) {
  return reinterpret_cast<Doubles>(x | 0x4330000000000000u) - 0x1p52;
}

/// log(x) for normal x > 0, within 1e-12 of itself.
inline Doubles log(Doubles x) {
  // x = m 2^k, m in [sqrt(1/2), sqrt(2)).
  const Words b = reinterpret_cast<Words>(x) + (0x3FF0000000000000u - 0x3FE6A09E667F3BCDu);
  const Doubles m = reinterpret_cast<Doubles>((b & 0x000FFFFFFFFFFFFFu) + 0x3FE6A09E667F3BCDu);
  const Doubles k = doubles_of(b >> 52) - 1023.0;
  // log(m) = 2 (s + s^3/3 + s^5/5 + ...)
  const Doubles f = m - 1.0, s = f / (f + 2.0), z = s * s, w = z * z;
  const Doubles odd = w * (w * (w * (2.0 / 15) + 2.0 / 11) + 2.0 / 7) + 2.0 / 3;
  const Doubles even = w * (w * (w * (2.0 / 17) + 2.0 / 13) + 2.0 / 9) + 2.0 / 5;
  return k * 0.693147180559945309 + (s * z * (odd + z * even) + 2.0 * s);
}

inline Doubles root(Doubles x) {
#if defined(__AVX512F__)
  return _mm512_sqrt_pd(x);
#elif defined(__AVX__)
  return _mm256_sqrt_pd(x);
#elif defined(__SSE2__)
  return _mm_sqrt_pd(x);
#else
  for (int l = 0; l < kWide; ++l) x[l] = __builtin_sqrt(x[l]);
  return x;
#endif
}

// Box-Muller of pairs of words, rounded once.
void normal(float* out, const std::uint32_t* words, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += 2 * kWide) {
    Words w = {};
    const std::int64_t count = n - i < 2 * kWide ? n - i : 2 * kWide;
    if (count == 2 * kWide) __builtin_memcpy(&w, words + i, sizeof w);
    else __builtin_memcpy(&w, words + i, static_cast<std::size_t>(count) * 4);
    // (0, 1] and [0, 1)
    const Doubles u = (doubles_of(w & 0xFFFFFFFF) + 1.0) * 0x1p-32,
                  v = doubles_of(w >> 32) * 0x1p-32;
    const Doubles radius = root(-2.0 * log(u)), angle = v * 6.283185307179586477;
    const Doubles cos = radius * sine<1>(angle), sin = radius * sine<0>(angle);
    float pairs[2 * kWide];
    for (int l = 0; l < kWide; ++l) {
      pairs[2 * l] = static_cast<float>(cos[l]);
      pairs[2 * l + 1] = static_cast<float>(sin[l]);
    }
    __builtin_memcpy(out + i, pairs, static_cast<std::size_t>(count) * 4);
  }
}

}  // namespace

void TROUPE_FILL(random)(LevelKernels& k) {
  k.philox = philox;
  k.uniform_f32 = uniform;
  k.normal_f32 = normal;
}

}  // namespace troupe::cpu
