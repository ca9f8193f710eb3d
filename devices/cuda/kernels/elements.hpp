// Elements as kernels see them: types that nvcc and g++ both take, without cuda_fp16.h, and the
// types to compute in.
//
//   return visit_elements(dtype, [&]<class T>(type_tag<T>) { return launch(..., kernel<T>, ..); });
//
// f16 and bf16 are stored; arithmetic happens in float. Conversions to them round once, to nearest
// even, with the bits that troupe::half and troupe::bfloat16 have.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <cuda_runtime_api.h>

#include <troupe/devices/base/dtype.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe::cuda {

struct F16 {
  std::uint16_t bits;
};
struct BF16 {
  std::uint16_t bits;
};
template <class F>
struct alignas(2 * sizeof(F)) Complex {
  using Part = F;
  F re, im;
};

template <class T>
constexpr bool is_small_float = std::is_same_v<T, F16> || std::is_same_v<T, BF16>;
template <class T>
constexpr bool is_complex_type =
    std::is_same_v<T, Complex<float>> || std::is_same_v<T, Complex<double>>;
template <class T>
constexpr bool is_real_float = is_small_float<T> || std::is_floating_point_v<T>;

template <class To, class From>
__host__ __device__ inline To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// ---- conversions

__device__ inline float wide(BF16 x) { return bits_as<float>(std::uint32_t(x.bits) << 16); }
#if defined(__CUDACC__)
__device__ inline float wide(F16 x) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
  return value;
}
__device__ inline F16 nearest_f16(float x) {
  F16 near;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(near.bits) : "f"(x));
  return near;
}
#else
inline float wide(F16 x) { return static_cast<float>(bits_as<_Float16>(x.bits)); }
inline F16 nearest_f16(float x) { return bits_as<F16>(static_cast<_Float16>(x)); }
#endif
template <class T>
__device__ inline T wide(T x) {
  return x;
}

__device__ inline BF16 nearest_bf16(float x) {
  const std::uint32_t word = bits_as<std::uint32_t>(x);
  if (x != x) return {static_cast<std::uint16_t>((word >> 16) | 0x40)};
  return {static_cast<std::uint16_t>((word + 0x7FFF + ((word >> 16) & 1)) >> 16)};
}

/// x as float, rounded to odd: a further rounding to fewer bits gives the bits of one rounding.
__device__ inline float odd_float(double x) {
  const float near = static_cast<float>(x);
  if (static_cast<double>(near) == x || x != x) return near;
  std::uint32_t word = bits_as<std::uint32_t>(near);
  if (fabs(static_cast<double>(near)) > fabs(x)) --word;
  return bits_as<float>(word | 1);
}

/// The T nearest to x; of integers the lower bits, as the CPU device's casts of whole numbers.
template <class T>
__device__ inline T narrowed(double x) {
  if constexpr (std::is_same_v<T, F16>) return nearest_f16(odd_float(x));
  else if constexpr (std::is_same_v<T, BF16>) return nearest_bf16(odd_float(x));
  else if constexpr (is_complex_type<T>) return {static_cast<typename T::Part>(x), 0};
  else return static_cast<T>(x);
}
template <class T>
__device__ inline T narrowed(Complex<double> x) {
  using Part = typename T::Part;
  return {static_cast<Part>(x.re), static_cast<Part>(x.im)};
}
template <class T>
__device__ inline T narrowed(std::uint64_t x) {
  return static_cast<T>(x);
}
template <class T>
__device__ inline T narrowed(float x) {
  if constexpr (std::is_same_v<T, F16>) return nearest_f16(x);
  else if constexpr (std::is_same_v<T, BF16>) return nearest_bf16(x);
  else return static_cast<T>(x);
}

// ---- sums of many

/// Floats, and both parts of complex numbers, accumulate in double; integers in 64 bits, signed
/// ones extended.
template <class T>
using Accumulator =
    std::conditional_t<std::is_integral_v<T>, std::uint64_t,
                       std::conditional_t<is_complex_type<T>, Complex<double>, double>>;

template <class T>
__device__ inline Accumulator<T> accumulated(T x) {
  if constexpr (is_complex_type<T>) return {static_cast<double>(x.re), static_cast<double>(x.im)};
  else return static_cast<Accumulator<T>>(wide(x));
}

__device__ inline double plus(double x, double y) { return x + y; }
__device__ inline std::uint64_t plus(std::uint64_t x, std::uint64_t y) { return x + y; }
__device__ inline Complex<double> plus(Complex<double> x, Complex<double> y) {
  return {x.re + y.re, x.im + y.im};
}

__device__ inline double times(double x, double y) { return x * y; }
__device__ inline std::uint64_t times(std::uint64_t x, std::uint64_t y) { return x * y; }
/// With the infinities that C's Annex G requires, as std::complex has them.
__device__ inline Complex<double> times(Complex<double> x, Complex<double> y) {
  double a = x.re, b = x.im, c = y.re, d = y.im;
  // Two roundings, which nvcc would contract.
  const double ac = __dmul_rn(a, c), bd = __dmul_rn(b, d), ad = __dmul_rn(a, d),
               bc = __dmul_rn(b, c);
  const Complex<double> product{ac - bd, ad + bc};
  if (product.re == product.re || product.im == product.im) return product;
  bool is_infinite = false;
  const auto box = [](double part) { return copysign(std::isinf(part) ? 1.0 : 0.0, part); };
  const auto number = [](double part) { return part == part ? part : copysign(0.0, part); };
  if (std::isinf(a) || std::isinf(b)) {
    a = box(a), b = box(b), c = number(c), d = number(d);
    is_infinite = true;
  }
  if (std::isinf(c) || std::isinf(d)) {
    c = box(c), d = box(d), a = number(a), b = number(b);
    is_infinite = true;
  }
  if (!is_infinite && (std::isinf(ac) || std::isinf(bd) || std::isinf(ad) || std::isinf(bc))) {
    a = number(a), b = number(b), c = number(c), d = number(d);
    is_infinite = true;
  }
  if (!is_infinite) return product;
  return {INFINITY * (a * c - b * d), INFINITY * (a * d + b * c)};
}

// ---- dispatch on the host

/// Calls f with the type of an unsigned number of `bytes`; cudaErrorInvalidValue if there is none.
template <class F>
cudaError_t visit_bytes(int bytes, F&& f) {
  switch (bytes) {
    case 1: return f(type_tag<std::uint8_t>{});
    case 2: return f(type_tag<std::uint16_t>{});
    case 4: return f(type_tag<std::uint32_t>{});
    case 8: return f(type_tag<std::uint64_t>{});
    case 16: return f(type_tag<uint4>{});
    default: return cudaErrorInvalidValue;
  }
}

/// Calls f with the type of a dtype's elements; strings: cudaErrorInvalidValue.
template <class F>
cudaError_t visit_elements(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f16: return f(type_tag<F16>{});
    case DType::bf16: return f(type_tag<BF16>{});
    case DType::f32: return f(type_tag<float>{});
    case DType::f64: return f(type_tag<double>{});
    case DType::c64: return f(type_tag<Complex<float>>{});
    case DType::c128: return f(type_tag<Complex<double>>{});
    case DType::i8: return f(type_tag<std::int8_t>{});
    case DType::i16: return f(type_tag<std::int16_t>{});
    case DType::i32: return f(type_tag<std::int32_t>{});
    case DType::i64: return f(type_tag<std::int64_t>{});
    case DType::u8: return f(type_tag<std::uint8_t>{});
    case DType::u16: return f(type_tag<std::uint16_t>{});
    case DType::u32: return f(type_tag<std::uint32_t>{});
    case DType::u64: return f(type_tag<std::uint64_t>{});
    case DType::boolean: return f(type_tag<bool>{});
    case DType::string: break;
  }
  return cudaErrorInvalidValue;
}

/// As visit_elements; signed integers and booleans: cudaErrorInvalidValue, because the caller sees
/// them as unsigned.
template <class F>
cudaError_t visit_unsigned(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f16: return f(type_tag<F16>{});
    case DType::bf16: return f(type_tag<BF16>{});
    case DType::f32: return f(type_tag<float>{});
    case DType::f64: return f(type_tag<double>{});
    case DType::c64: return f(type_tag<Complex<float>>{});
    case DType::c128: return f(type_tag<Complex<double>>{});
    case DType::u8: return f(type_tag<std::uint8_t>{});
    case DType::u16: return f(type_tag<std::uint16_t>{});
    case DType::u32: return f(type_tag<std::uint32_t>{});
    case DType::u64: return f(type_tag<std::uint64_t>{});
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace troupe::cuda
