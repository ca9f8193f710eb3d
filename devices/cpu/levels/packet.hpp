// Approximations of f32 functions on packets: exp, expm1, log, log1p, tanh, sigmoid, erf, erfc,
// gelu and its slope, sin, cos, tan, atan, atan2.
//
// A packet is the content of one register of the level. Only correctly rounded operations are used
// and none is contracted, so every level computes the same bits. Written after Cephes (exp), musl's
// libm (log, log1p, sin, cos: Sun's FDLIBM, the permissive notice of 1993) and N. Juffa's erf.
// Errors against double, on every 37th of all f32 values (tanh, sigmoid: on all), in units in the
// last place: erfc, gelu, sin, cos, tan, atan 0.6, log, log1p 0.9, exp 1.1, erf 1.6, expm1 1.8,
// sigmoid, tanh 2.6. The tests allow 4.
#pragma once

#include <troupe/devices/cpu/levels/tile.hpp>

#if defined(__AVX512F__)
// GCC 12 takes _mm512_undefined_pd() for an uninitialised read.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#endif

namespace troupe::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int kPacketBytes = 64;
#elif defined(__AVX__)
constexpr int kPacketBytes = 32;
#else
constexpr int kPacketBytes = 16;
#endif
constexpr int kPacket = kPacketBytes / 4;

typedef float Floats __attribute__((vector_size(kPacketBytes)));
typedef std::int32_t Ints __attribute__((vector_size(kPacketBytes)));
typedef double Doubles __attribute__((vector_size(kPacketBytes)));
typedef std::int64_t Longs __attribute__((vector_size(kPacketBytes)));
typedef float HalfFloats __attribute__((vector_size(kPacketBytes / 2)));

inline Floats load_floats(const float* x) {
  Floats v;
  __builtin_memcpy(&v, x, sizeof v);
  return v;
}
inline void store(float* to, Floats v) { __builtin_memcpy(to, &v, sizeof v); }
inline Doubles load_doubles(const double* x) {
  Doubles v;
  __builtin_memcpy(&v, x, sizeof v);
  return v;
}
inline Doubles widened(HalfFloats x) {
#if defined(__AVX512F__)
  return _mm512_cvtps_pd(x);  // GCC 12 converts in halves: sums of 10^5 took twice as long
#elif defined(__AVX__) && !defined(__clang__)
  return __builtin_ia32_cvtps2pd256(x);
#else
  return __builtin_convertvector(x, Doubles);
#endif
}
inline Doubles load_doubles(const float* x) {
  HalfFloats v;
  __builtin_memcpy(&v, x, sizeof v);
  return widened(v);
}
inline Floats all(float x) { return x - Floats{}; }  // 0 + x would lose the sign of -0
inline Ints bits_of(Floats x) { return reinterpret_cast<Ints>(x); }
inline Floats from_bits(Ints x) { return reinterpret_cast<Floats>(x); }
inline Floats magnitude_of(Floats x) { return from_bits(bits_of(x) & 0x7FFFFFFF); }
inline Floats with_sign_of(Floats x, Floats sign) {
  return from_bits((bits_of(x) & 0x7FFFFFFF) | (bits_of(sign) & ~0x7FFFFFFF));
}
/// x or y, the larger or smaller; y where one is NaN.
inline Floats larger(Floats x, Floats y) {
#if defined(__AVX512F__)
  return _mm512_max_ps(x, y);  // GCC 12 compares, then selects
#elif defined(__AVX__) && !defined(__clang__)
  return __builtin_ia32_maxps256(x, y);
#elif defined(__SSE__) && !defined(__clang__)
  return __builtin_ia32_maxps(x, y);
#else
  return x > y ? x : y;
#endif
}
inline Floats smaller(Floats x, Floats y) {
#if defined(__AVX512F__)
  return _mm512_min_ps(x, y);
#elif defined(__AVX__) && !defined(__clang__)
  return __builtin_ia32_minps256(x, y);
#elif defined(__SSE__) && !defined(__clang__)
  return __builtin_ia32_minps(x, y);
#else
  return x < y ? x : y;
#endif
}
/// 2^n for n in [-126, 127], in the low nine bits.
inline Floats power_of_low_bits(Ints n) { return from_bits((n << 23) + 0x3F800000); }

/// x = n ln 2 + r with |r| <= ln 2 / 2, for |x| < 2^20; exp(r) - 1 = r + r^2 p(r).
struct Reduced {
  Floats shifted;  // whose low bits are n
  Floats r, tail;  // tail = r^2 p(r)
};
inline Reduced reduced(Floats x) {
  Floats shifted = x * 1.44269504088896341f + 12582912.f;  // the sum's low bits are round(x / ln 2)
  Floats n = shifted - 12582912.f;
  Floats r = x - n * 0.693359375f - n * -2.12194440e-4f;
  Floats rr = r * r;
  // Estrin's order: a lone scalar waits for the longest chain.
  Floats p =
      (r * 0.16666543f + 0.5f) + rr * ((r * 0.008366611f + 0.04166628f) + rr * 0.0013946497f);
  return {shifted, r, p * rr};
}

/// y 2^n for n in [-150, 128], where shifted = n + 1.5 * 2^23.
inline Floats scaled(Floats y, Floats shifted) {
#if defined(__AVX512F__)
  return _mm512_scalef_ps(y, shifted - 12582912.f);
#else
  // In two steps, the first of which is exact: results may be subnormal.
  const Ints n = bits_of(shifted), half = n >> 1;
  return y * power_of_low_bits(half) * power_of_low_bits(n - half);
#endif
}

inline Floats exp(Floats x) {
  Reduced e = reduced(larger(all(-104.f), smaller(all(89.f), x)));
  const Floats y = e.tail + e.r + 1.f;
  return scaled(y, e.shifted);
}

/// exp(x) for x <= 88 in fewer steps, since x / ln 2 is rounded: for negative x within 2e-7, which
/// is no relative error.
inline Floats exp_of_less(Floats x) {
  const Floats t = larger(all(-150.f), x * 1.44269504088896341f);
  const Floats shifted = t + 12582912.f;  // the sum's low bits are round(t)
  const Floats n = shifted - 12582912.f, f = t - n, ff = f * f;
  const Floats y = (f * 0.693147f + 1.f) + ff * ((f * 0.055507336f + 0.24022242f) +
                                                 ff * (f * 0.0013264727f + 0.009671513f));
  return scaled(y, shifted);
}

inline Floats expm1(Floats x) {
  Reduced e = reduced(larger(all(-20.f), smaller(all(89.f), x)));
  // 2 (2^(n-1) (exp(r) - 1) + 2^(n-1) - 1/2): n reaches 128.
  Floats scale = power_of_low_bits(bits_of(e.shifted) - 1);
  Floats y = 2.f * (scale * (e.tail + e.r) + (scale - 0.5f));
  return magnitude_of(x) < 3e-8f ? x : y;
}

// log(m) + k ln 2 + c, for m = 1 + f in [sqrt(1/2), sqrt(2)).
inline Floats log_of_parts(Floats f, Floats k, Floats c) {
  Floats s = f / (f + 2.f), z = s * s, w = z * z;
  Floats r = z * (w * 0.2849878728389740f + 0.6666666269302368f) +
             w * (w * 0.2427907735109329f + 0.4000097215175629f);
  Floats half_square = 0.5f * f * f;
  return s * (half_square + r) + (k * 9.0580006145e-06f + c) - half_square + f +
         k * 6.9313812256e-01f;
}

struct Split {
  Floats m;  // in [sqrt(1/2), sqrt(2))
  Ints k;
};
// x > 0 and normal, = m 2^k.
inline Split split(Floats x) {
  Ints b = bits_of(x) + (0x3F800000 - 0x3F3504F3);
  return {from_bits((b & 0x007FFFFF) + 0x3F3504F3), (b >> 23) - 127};
}
inline Floats log_limits(Floats x, Floats y) {  // x: operand of log, y: the result so far
  y = x == __builtin_inff() ? x : y;
  y = x == 0.f ? all(-__builtin_inff()) : y;
  return x >= 0.f ? y : all(__builtin_nanf(""));
}

inline Floats log(Floats x) {
  Ints tiny = x < 1.17549435e-38f;
  Split s = split(tiny ? x * 8388608.f : x);
  Ints k = s.k - (tiny & 23);
  return log_limits(x, log_of_parts(s.m - 1.f, __builtin_convertvector(k, Floats), Floats{}));
}

inline Floats log1p(Floats x) {
  Floats u = x + 1.f;
  Split s = split(u);
  // The part of x + 1 that rounding lost, relative to u.
  Floats lost = (s.k >= 2 ? 1.f - (u - x) : x - (u - 1.f)) / u;
  lost = s.k < 25 ? lost : Floats{};
  Ints near_one = s.k == 0;
  Floats y = log_of_parts(near_one ? x : s.m - 1.f, __builtin_convertvector(s.k, Floats),
                          near_one ? Floats{} : lost);
  y = log_limits(u, y);
  return magnitude_of(x) < 3e-8f ? x : y;
}

/// tanh(y) for |y| <= ln 2 / 4.
inline Floats tanh_of_small(Floats y) {
  const Floats z = y * y;
  return y + y * z * (z * 0.13110629f - 0.33331272f);
}

/// tanh(n ln 2 / 2 + y), by the addition theorem, of (2^n - 1) / (2^n + 1) and u = tanh(y): in one
/// division, never above 1, and u itself for n = 0.
inline Floats tanh(Floats x) {
  const Floats a = smaller(all(9.02f), magnitude_of(x));
  const Floats shifted = a * 2.88539008f + 12582912.f;  // the sum's low bits are n
  const Floats u = tanh_of_small(a - (shifted - 12582912.f) * 0.34657359f);
  const Floats power = power_of_low_bits(bits_of(shifted)), less = power - 1.f, more = power + 1.f;
  const Floats y = (less + more * u) / (more + less * u);
  return from_bits(bits_of(y) | (bits_of(x) & ~0x7FFFFFFF));
}

/// exp(x) = 2^n (1 + u) / (1 - u), u = tanh(y), y = (x - n ln 2) / 2. Both terms of the quotient
/// are times 2^64, so that none but the result is subnormal.
inline Floats sigmoid(Floats x) {
  x = larger(all(-104.f), smaller(all(20.f), x));
  const Floats shifted = x * 1.44269504f + 12582912.f, n = shifted - 12582912.f;
  const Floats u = tanh_of_small(x * 0.5f - n * 0.3466796875f - n * -1.06097220e-4f);
  const Floats power = power_of_low_bits(bits_of(shifted) + 64);
  const Floats above = power * (1.f + u);
  return above / (above + (0x1p64f - u * 0x1p64f));
}

inline Floats erf(Floats x) {
  Floats t = smaller(all(10.f), magnitude_of(x)), s = x * x;
  Floats u = t * t;
  Floats far = t * -1.72853470e-5f + 3.83197126e-4f;
  far = far * u + (t * -3.88396438e-3f + 2.42546219e-2f);
  far = far * t + -1.06777877e-1f;
  far = far * t + -6.34846687e-1f;
  far = far * t + -1.28717512e-1f;
  far = far * t - t;
  far = with_sign_of(1.f - exp_of_less(far), x);
  Floats near = s * -5.96761703e-4f + 4.99119423e-3f;
  near = near * s + -2.67681349e-2f;
  near = near * s + 1.12819925e-1f;
  near = near * s + -3.76125336e-1f;
  near = near * s + 1.28379166e-1f;
  near = near * x + x;
  return t > 0.927734375f ? far : near;
}

// ---- sin and cos, in double: the reduction by pi/2 is then exact enough up to kLargeAngle.
constexpr float kLargeAngle = 1e6f;

template <int quarter_turns>
inline Doubles sine(Doubles x) {
  Doubles shifted = x * 0.63661977236758138 + 6755399441055744.0;
  Doubles n = shifted - 6755399441055744.0;
  Doubles y = x - n * 1.57079631090164184570 - n * 1.58932547735281966916e-8;
  Longs quadrant = reinterpret_cast<Longs>(shifted) + quarter_turns;
  Doubles z = y * y, w = z * z;
  Doubles sin_y = y + z * y * (z * 0x111110896efbb2.0p-59 - 0x15555554cbac77.0p-55) +
                  z * y * w * (z * 0x16cd878c3b46a7.0p-71 - 0x1a00f9e2cae774.0p-65);
  Doubles cos_y = 1.0 - z * 0.499999997251031003120 + w * 0x155553e1053a42.0p-57 +
                  w * z * (z * 0x199342e0ee5069.0p-68 - 0x16c087e80f1e27.0p-62);
  Doubles r = (quadrant & 1) != 0 ? cos_y : sin_y;
  r = (quadrant & 2) != 0 ? -r : r;
  if constexpr (quarter_turns == 0) return x == 0.0 ? x : r;  // -0 for -0
  return r;
}

inline Doubles tangent(Doubles x) { return sine<0>(x) / sine<1>(x); }

/// A function of doubles on the halves of packets.
template <class F>
inline Floats in_doubles(Floats x, F f) {
  HalfFloats half[2];
  __builtin_memcpy(half, &x, sizeof x);
  for (HalfFloats& h : half) h = __builtin_convertvector(f(widened(h)), HalfFloats);
  Floats y;
  __builtin_memcpy(&y, half, sizeof y);
  return y;
}

inline Doubles magnitude_of(Doubles x) {
  return reinterpret_cast<Doubles>(reinterpret_cast<Longs>(x) & 0x7FFFFFFFFFFFFFFF);
}

// ---- Tails of the normal distribution, in double: erf and a float's square lack digits for them.

/// exp(x) for x in [-700, 0], within 4e-12 of its size.
inline Doubles exp_of_negative(Doubles x) {
  const Doubles shifted = x * 1.44269504088896341 + 6755399441055744.0;
  const Doubles r = x - (shifted - 6755399441055744.0) * 0.693147180559945309, s = r * r;
  const Doubles high =
      (r * 0.008333296667298613 + 0.041666666723122275) +
      s * ((r * 0.0001990076715643722 + 0.0013888852233974289) + s * 2.4861070732698495e-05);
  const Doubles y = (r + 1.0) + s * ((r * 0.1666666672314072 + 0.5) + s * high);
  const Longs power = (reinterpret_cast<Longs>(shifted) << 52) + (Longs{} + 0x3FF0000000000000);
  return y * reinterpret_cast<Doubles>(power);
}

/// exp(-z^2) and erfc(z) for z in [0, 11], within 1e-10 of their size: (1 + 2 z) exp(z^2) erfc(z)
/// is a polynomial in q = (z - 2) / (z + 2) (Shepherd and Laframboise, 1981).
struct Tail {
  Doubles bell, rest;
};
inline Tail tail_from(Doubles z) {
  const Doubles more = z + 2.0, twice = z * 2.0 + 1.0, inverse = 1.0 / (more * twice);
  const Doubles q = (z - 2.0) * (twice * inverse), s = q * q, w = s * s;
  const Doubles low = (q * -0.09276382568828287 + 1.2769783816332898) +
                      s * (q * 0.16405123483815703 + -0.16603040892885038);
  const Doubles middle = (q * -0.008033314001124862 + -0.05421975076242475) +
                         s * (q * 0.0012663980663592267 + 0.008720692294601942);
  const Doubles high = (q * -0.0004366233039405461 + -0.0014503265209471728) +
                       s * (q * 0.0001189608359776039 + 0.00019884016793328627);
  const Doubles last = q * -1.1281075245113587e-05 + -5.877832372935734e-06;
  const Doubles p = low + w * (middle + w * (high + w * last));
  const Doubles bell = exp_of_negative(-(z * z));
  return {bell, p * bell * (more * inverse)};
}
inline Doubles at_most(Doubles x, double most) { return x > most ? Doubles{} + most : x; }

inline Doubles erfc_of(Doubles x) {
  const Doubles rest = tail_from(at_most(magnitude_of(x), 10.9)).rest;
  return x != x ? x : x < 0.0 ? 2.0 - rest : rest;
}

/// x and the distribution below it; x no farther from 0 than where a float of it is 0 or 1.
struct Normal {
  Doubles x, below, density;
};
inline Normal normal_at(Doubles x) {
  const Doubles size = at_most(magnitude_of(x), 15.4);
  const Tail tail = tail_from(size * 0.707106781186547524);
  const Doubles half = tail.rest * 0.5;
  return {size, x < 0.0 ? half : 1.0 - half, tail.bell * 0.398942280401432678};
}
inline Doubles gelu_of(Doubles x) {
  const Normal n = normal_at(x);
  return x != x ? x : x < 0.0 ? n.x * n.below * -1.0 : x * n.below;
}
inline Doubles gelu_slope_of(Doubles x) {
  const Normal n = normal_at(x);
  const Doubles bell = n.x * n.density;
  return x != x ? x : x < 0.0 ? n.below - bell : n.below + bell;
}
inline Floats erfc(Floats x) {
  return in_doubles(x, [](Doubles part) { return erfc_of(part); });
}
inline Floats gelu(Floats x) {
  return in_doubles(x, [](Doubles part) { return gelu_of(part); });
}
inline Floats gelu_slope(Floats x) {
  return in_doubles(x, [](Doubles part) { return gelu_slope_of(part); });
}

// ---- The angle of (x, y), in double.

inline Doubles angle_of(Doubles y, Doubles x) {
  const Doubles up = magnitude_of(y), across = magnitude_of(x);
  const Longs is_steep = up > across;
  const Doubles less = is_steep ? across : up, more = is_steep ? up : across;
  // atan(t) = pi/4 + atan((t - 1) / (t + 1)): what is left is at most tan(pi/8). Equals, infinities
  // too, are at pi/4.
  const Longs is_middle = (less > more * 0.41421356237309503) | ((less == more) & (more != 0.0));
  Doubles above = is_middle ? less - more : less, below = is_middle ? less + more : more;
  above = less == more ? Doubles{} : above;
  below = more == 0.0 ? Doubles{} + 1.0 : below;
  const Doubles t = above / below, z = t * t, w = z * z;
  const Doubles odd =
      -1.0 / 3 +
      w * (-1.0 / 7 + w * (-1.0 / 11 + w * (-1.0 / 15 + w * (-1.0 / 19 + w * (-1.0 / 23)))));
  const Doubles even = 1.0 / 5 + w * (1.0 / 9 + w * (1.0 / 13 + w * (1.0 / 17 + w * (1.0 / 21))));
  Doubles angle = t + t * z * (odd + z * even);
  angle = (is_middle ? Doubles{} + 0.785398163397448309616 : Doubles{}) + angle;
  angle = is_steep ? 1.57079632679489661923 - angle : angle;
  angle = reinterpret_cast<Longs>(x) < 0 ? 3.14159265358979323846 - angle : angle;
  const Longs sign = reinterpret_cast<Longs>(y) & ~0x7FFFFFFFFFFFFFFF;
  angle = reinterpret_cast<Doubles>(reinterpret_cast<Longs>(angle) | sign);
  // x + y would be either's bits
  return (x != x) | (y != y) ? Doubles{} + __builtin_nan("") : angle;
}

inline Floats atan2(Floats y, Floats x) {
  HalfFloats up[2], across[2];
  __builtin_memcpy(up, &y, sizeof y);
  __builtin_memcpy(across, &x, sizeof x);
  for (int h = 0; h < 2; ++h)
    up[h] = __builtin_convertvector(angle_of(widened(up[h]), widened(across[h])), HalfFloats);
  __builtin_memcpy(&y, up, sizeof y);
  return y;
}
inline Floats atan(Floats x) { return atan2(x, all(1.f)); }

}  // namespace
}  // namespace troupe::cpu
