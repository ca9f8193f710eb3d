// Conversions between dtypes.
//
// Floating to integer cuts towards zero and saturates; NaN becomes 0. Integers wrap. A bool is true
// if the value is not 0. f16 and bf16 convert to other dtypes by way of f32; conversions to f16 and
// bf16 are rounded once, to nearest even. Complex to real drops the imaginary part.
#include <troupe/devices/cpu/levels/tile.hpp>

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace troupe::cpu {
namespace {

struct Half {
  std::uint16_t bits;
};
struct Brain {
  std::uint16_t bits;
};
struct Boolean {
  Bool bits;
};
template <class T>
constexpr bool is_complex_type = false;
template <class T>
constexpr bool is_complex_type<Complex<T>> = true;
template <class T>
constexpr bool is_small_float = __is_same(T, Half) || __is_same(T, Brain);
template <class T>
constexpr bool is_float = __is_same(T, float) || __is_same(T, double);

inline float widen(Half x) {
  _Float16 narrow;
  __builtin_memcpy(&narrow, &x, 2);
  return float(narrow);
}
inline float widen(Brain x) {
  std::uint32_t word = std::uint32_t(x.bits) << 16;
  float value;
  __builtin_memcpy(&value, &word, 4);
  return value;
}
inline Half narrow_half(float x) {
  _Float16 narrow = _Float16(x);
  Half h;
  __builtin_memcpy(&h, &narrow, 2);
  return h;
}
inline Brain narrow_brain(float x) {
  std::uint32_t word;
  __builtin_memcpy(&word, &x, 4);
  std::uint32_t rounded = (word + 0x7FFF + ((word >> 16) & 1)) >> 16;
  return {std::uint16_t(x != x ? (word >> 16) | 0x40 : rounded)};
}

// A number as float, rounded to odd: lost bits show in the last bit, so that a further rounding to
// fewer bits gives the bits of one rounding (Boldo and Melquiond, 2008). Selects only, which become
// vector code.
inline float to_odd(float x) { return x; }
inline float to_odd(double x) {
  const float near = float(x);
  std::uint32_t word;
  __builtin_memcpy(&word, &near, 4);
  const bool is_above = double(__builtin_fabsf(near)) > __builtin_fabs(x);
  const std::uint32_t odd = (word - is_above) | 1;
  word = double(near) == x || x != x ? word : odd;
  float result;
  __builtin_memcpy(&result, &word, 4);
  return result;
}
template <class T>
inline float to_odd(T x) {  // an integer
  if constexpr (sizeof(T) == 8) {
    constexpr T low = 0xFFF, top = T(1) << 53;
    const bool is_large = x > top || (T(-1) < T(0) && x < T(0) - top);
    x = is_large && (x & low) ? T((x & ~low) | (low + 1)) : x;
  }
  return to_odd(double(x));
}

// Bounds of T as floating F: the largest F not above T's largest, and its exact end.
template <class T, class F>
T saturate(F x) {
  constexpr int bits = 8 * sizeof(T);
  constexpr bool negative = T(-1) < T(0);
  // first value too large
  constexpr F end = F(std::uint64_t(1) << (bits - 1)) * (negative ? 1 : 2);
  constexpr T top =
      T(negative ? (std::uint64_t(1) << (bits - 1)) - 1 : ~std::uint64_t(0) >> (64 - bits));
  constexpr T bottom = negative ? T(std::uint64_t(1) << (bits - 1)) : T(0);
  constexpr F begin = negative ? -end : F(0);
  bool low = !(x > begin), high = x >= end;  // NaN is low
  F inside = low || high ? F(0) : x;
  T value = T(inside);
  return x != x ? T(0) : high ? top : low ? bottom : value;
}

template <class To, class From>
To converted(From x) {
  if constexpr (__is_same(To, From)) return x;
  else if constexpr (is_complex_type<To> && is_complex_type<From>)
    return {decltype(To::re)(x.re), decltype(To::re)(x.im)};
  else if constexpr (is_complex_type<To>) return {converted<decltype(To::re)>(x), 0};
  else if constexpr (is_complex_type<From>) {
    if constexpr (__is_same(To, Boolean)) return {Bool(x.re != 0 || x.im != 0)};
    else return converted<To>(x.re);
  } else if constexpr (is_small_float<From>) return converted<To>(widen(x));
  else if constexpr (__is_same(From, Boolean)) return converted<To>(std::uint8_t(x.bits != 0));
  else if constexpr (__is_same(To, Half)) return narrow_half(to_odd(x));
  else if constexpr (__is_same(To, Brain)) return narrow_brain(to_odd(x));
  else if constexpr (__is_same(To, Boolean)) return {Bool(x != 0)};
  else if constexpr (is_float<From> && !is_float<To>) return saturate<To>(x);
  else return To(x);
}

#if defined(__F16C__)
// For a single element, which may be a whole tensor, nothing behind it is read.
void half_to_float(void* dst, const void* a, const void*, const void*, std::int64_t n) {
  if (n == 1) {
    *static_cast<float*>(dst) = converted<float>(*static_cast<const Half*>(a));
    return;
  }
  for (std::int64_t i = 0; i < n; i += 8)
    _mm256_storeu_ps(static_cast<float*>(dst) + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(
                         reinterpret_cast<const __m128i*>(static_cast<const Half*>(a) + i))));
}
void float_to_half(void* dst, const void* a, const void*, const void*, std::int64_t n) {
  if (n == 1) {
    *static_cast<Half*>(dst) = converted<Half>(*static_cast<const float*>(a));
    return;
  }
  for (std::int64_t i = 0; i < n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(static_cast<Half*>(dst) + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(static_cast<const float*>(a) + i),
                                     _MM_FROUND_TO_NEAREST_INT));
}
#endif

template <class From>
void fill_from(LevelKernels& k, DType from) {
  auto set = [&](DType to, TileFunction f) { k.cast[int(to)][int(from)] = f; };
  set(DType::f16, unary<Half, From, converted<Half, From>>);
  set(DType::bf16, unary<Brain, From, converted<Brain, From>>);
  set(DType::f32, unary<float, From, converted<float, From>>);
  set(DType::f64, unary<double, From, converted<double, From>>);
  set(DType::c64, unary<Complex<float>, From, converted<Complex<float>, From>>);
  set(DType::c128, unary<Complex<double>, From, converted<Complex<double>, From>>);
  set(DType::i8, unary<std::int8_t, From, converted<std::int8_t, From>>);
  set(DType::i16, unary<std::int16_t, From, converted<std::int16_t, From>>);
  set(DType::i32, unary<std::int32_t, From, converted<std::int32_t, From>>);
  set(DType::i64, unary<std::int64_t, From, converted<std::int64_t, From>>);
  set(DType::u8, unary<std::uint8_t, From, converted<std::uint8_t, From>>);
  set(DType::u16, unary<std::uint16_t, From, converted<std::uint16_t, From>>);
  set(DType::u32, unary<std::uint32_t, From, converted<std::uint32_t, From>>);
  set(DType::u64, unary<std::uint64_t, From, converted<std::uint64_t, From>>);
  set(DType::boolean, unary<Boolean, From, converted<Boolean, From>>);
}

}  // namespace

void TROUPE_FILL(casts)(LevelKernels& k) {
  fill_from<Half>(k, DType::f16);
  fill_from<Brain>(k, DType::bf16);
  fill_from<float>(k, DType::f32);
  fill_from<double>(k, DType::f64);
  fill_from<Complex<float>>(k, DType::c64);
  fill_from<Complex<double>>(k, DType::c128);
  fill_from<std::int8_t>(k, DType::i8);
  fill_from<std::int16_t>(k, DType::i16);
  fill_from<std::int32_t>(k, DType::i32);
  fill_from<std::int64_t>(k, DType::i64);
  fill_from<std::uint8_t>(k, DType::u8);
  fill_from<std::uint16_t>(k, DType::u16);
  fill_from<std::uint32_t>(k, DType::u32);
  fill_from<std::uint64_t>(k, DType::u64);
  fill_from<Boolean>(k, DType::boolean);
#if defined(__F16C__)
  k.cast[int(DType::f32)][int(DType::f16)] = half_to_float;
  k.cast[int(DType::f16)][int(DType::f32)] = float_to_half;
#endif
}

}  // namespace troupe::cpu
