// Properties of element types for kernels, and the types that kernels compute in.
#pragma once

#include <complex>
#include <cstdint>
#include <type_traits>

#include <fmt/format.h>

#include <troupe/devices/base/dtype.hpp>
#include <troupe/devices/base/error.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe::cpu {

template <class T>
constexpr bool is_small_float = std::is_same_v<T, half> || std::is_same_v<T, bfloat16>;
template <class T>
constexpr bool is_complex_type =
    std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;
template <class T>
constexpr bool is_real_float = is_small_float<T> || std::is_floating_point_v<T>;

/// f16 and bf16 compute in float, the others in themselves.
template <class T>
using Wide = std::conditional_t<is_small_float<T>, float, T>;
template <class T>
Wide<T> wide(T x) {
  return static_cast<Wide<T>>(x);
}

/// The type that sums of many elements are taken in: floats, and both parts of complex numbers, in
/// double; integers wrap, signed ones extended.
template <class T>
using Accumulator =
    std::conditional_t<std::is_integral_v<T>, std::uint64_t,
                       std::conditional_t<is_complex_type<T>, std::complex<double>, double>>;
template <class T>
Accumulator<T> accumulated(T x) {
  return static_cast<Accumulator<T>>(wide(x));
}
template <class T>
T narrowed(Accumulator<T> x) {
  if constexpr (is_small_float<T>) return T(x);
  else if constexpr (std::is_same_v<T, bool>) return x != 0;
  else return static_cast<T>(x);
}

/// f with the type of f32 or f64; throws unimplemented, in the name of `what`, of another.
template <class F>
void visit_wide_float(const char* what, DType t, F&& f) {
  if (t == DType::f32) return f(type_tag<float>{});
  if (t == DType::f64) return f(type_tag<double>{});
  throw Error(Code::unimplemented, fmt::format("{} of {} is not defined", what, name_of(t)));
}

}  // namespace troupe::cpu
