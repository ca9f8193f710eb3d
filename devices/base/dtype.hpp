// The types of tensor elements.
//
//   dtype_of<float>                  // DType::f32
//   visit_dtype(t, []<class T>(type_tag<T>) { ... });
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iosfwd>
#include <string_view>
#include <type_traits>

#include <troupe/devices/base/error.hpp>

namespace troupe {

enum class DType : std::uint8_t {
  f16,
  bf16,
  f32,
  f64,
  c64,
  c128,
  i8,
  i16,
  i32,
  i64,
  u8,
  u16,
  u32,
  u64,
  boolean,
  string
};
inline constexpr int kDTypes = 15;     // dtypes for computation, from f16 to boolean
inline constexpr int kAllDTypes = 16;  // and string

namespace detail {

/// An element of a tensor of strings: bytes that the tensor keeps (`Tensor::with_own_text`). Zeros
/// are the empty string.
struct StringRef {
  const char* data = nullptr;
  std::uint64_t size = 0;
  std::string_view view() const { return {data, size}; }
  friend bool operator==(const StringRef& a, const StringRef& b) { return a.view() == b.view(); }
};

/// Returns `value` as float, rounded to odd: a further rounding to fewer bits gives the bits of one
/// rounding (Boldo and Melquiond, 2008).
inline float odd_float(double value) {
  const float near = static_cast<float>(value);
  if (static_cast<double>(near) == value || value != value) return near;
  std::uint32_t word;
  std::memcpy(&word, &near, 4);
  const double size = value < 0 ? -value : value;
  const float near_size = near < 0 ? -near : near;
  word = (static_cast<double>(near_size) > size ? word - 1 : word) | 1;
  float odd;
  std::memcpy(&odd, &word, 4);
  return odd;
}
/// An integer as double, rounded to odd: up to 2^53 in size exact.
template <class T>
double odd_double(T value) {
  if constexpr (sizeof(T) == 8) {
    constexpr T low = 0xFFF, top = T(1) << 53;
    const bool is_large = value > top || (std::is_signed_v<T> && value < T(0) - top);
    if (is_large && (value & low)) value = static_cast<T>((value & ~low) | (low + 1));
  }
  return static_cast<double>(value);
}
}  // namespace detail

/// IEEE 754 binary16: stored; arithmetic happens in float. Conversions to it round once.
struct half {
  std::uint16_t bits = 0;
  half() = default;
  explicit half(float value);
  explicit half(double value) : half(detail::odd_float(value)) {}
  template <class T>
  requires std::is_integral_v<T>
  explicit half(T value) : half(detail::odd_double(value)) {}
  explicit operator float() const;
  friend bool operator==(half a, half b) { return float(a) == float(b); }
};

/// bfloat16, the upper half of a float, rounded to nearest even: stored; arithmetic happens in
/// float. Conversions to it round once.
struct bfloat16 {
  std::uint16_t bits = 0;
  bfloat16() = default;
  explicit bfloat16(float value);
  explicit bfloat16(double value) : bfloat16(detail::odd_float(value)) {}
  template <class T>
  requires std::is_integral_v<T>
  explicit bfloat16(T value) : bfloat16(detail::odd_double(value)) {}
  explicit operator float() const;
  friend bool operator==(bfloat16 a, bfloat16 b) { return float(a) == float(b); }
};

inline half::half(float value) {
  _Float16 narrow = static_cast<_Float16>(value);
  std::memcpy(&bits, &narrow, 2);
}
inline half::operator float() const {
  _Float16 narrow;
  std::memcpy(&narrow, &bits, 2);
  return static_cast<float>(narrow);
}
inline bfloat16::bfloat16(float value) {
  std::uint32_t word;
  std::memcpy(&word, &value, 4);
  if (value != value) {
    // keep NaN a NaN when the payload is cut
    bits = static_cast<std::uint16_t>((word >> 16) | 0x40);
  } else {
    bits = static_cast<std::uint16_t>((word + 0x7FFF + ((word >> 16) & 1)) >> 16);
  }
}
inline bfloat16::operator float() const {
  std::uint32_t word = std::uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &word, 4);
  return value;
}

/// `f32`, `i64`, `bool` …
std::string_view name_of(DType type);
/// Writes the name.
std::ostream& operator<<(std::ostream& out, DType type);
/// Bytes of one element.
constexpr std::size_t size_of(DType type) {
  constexpr std::uint8_t bytes[kAllDTypes] = {2, 2, 4, 8, 8, 16, 1, 2,
                                              4, 8, 1, 2, 4, 8,  1, sizeof(detail::StringRef)};
  return bytes[static_cast<int>(type)];
}
constexpr bool is_floating(DType t) { return t <= DType::f64; }
constexpr bool is_complex(DType t) { return t == DType::c64 || t == DType::c128; }
constexpr bool is_integer(DType t) { return t >= DType::i8 && t <= DType::u64; }
constexpr bool is_signed_integer(DType t) { return t >= DType::i8 && t <= DType::i64; }

namespace detail {

template <class T>
struct type_tag {
  using type = T;
};

/// Throws unimplemented: strings were given to an op of numbers.
[[noreturn]] void refuse_strings();

}  // namespace detail

/// Calls `f(type_tag<T>{})` with the C++ type of `type`, which is not string.
template <class F>
decltype(auto) visit_dtype(DType type, F&& f) {
  switch (type) {
    case DType::f16: return f(detail::type_tag<half>{});
    case DType::bf16: return f(detail::type_tag<bfloat16>{});
    case DType::f32: return f(detail::type_tag<float>{});
    case DType::f64: return f(detail::type_tag<double>{});
    case DType::c64: return f(detail::type_tag<std::complex<float>>{});
    case DType::c128: return f(detail::type_tag<std::complex<double>>{});
    case DType::i8: return f(detail::type_tag<std::int8_t>{});
    case DType::i16: return f(detail::type_tag<std::int16_t>{});
    case DType::i32: return f(detail::type_tag<std::int32_t>{});
    case DType::i64: return f(detail::type_tag<std::int64_t>{});
    case DType::u8: return f(detail::type_tag<std::uint8_t>{});
    case DType::u16: return f(detail::type_tag<std::uint16_t>{});
    case DType::u32: return f(detail::type_tag<std::uint32_t>{});
    case DType::u64: return f(detail::type_tag<std::uint64_t>{});
    case DType::boolean: break;
    case DType::string: detail::refuse_strings();
  }
  return f(detail::type_tag<bool>{});
}

namespace detail {
template <class T>
constexpr DType dtype_for() {
  if constexpr (std::is_same_v<T, half>) return DType::f16;
  else if constexpr (std::is_same_v<T, bfloat16>) return DType::bf16;
  else if constexpr (std::is_same_v<T, float>) return DType::f32;
  else if constexpr (std::is_same_v<T, double>) return DType::f64;
  else if constexpr (std::is_same_v<T, std::complex<float>>) return DType::c64;
  else if constexpr (std::is_same_v<T, std::complex<double>>) return DType::c128;
  else if constexpr (std::is_same_v<T, bool>) return DType::boolean;
  else if constexpr (std::is_same_v<T, StringRef>) return DType::string;
  else {
    static_assert(std::is_integral_v<T>, "no dtype holds this C++ type");
    constexpr int log2 = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return static_cast<DType>(static_cast<int>(std::is_signed_v<T> ? DType::i8 : DType::u8) + log2);
  }
}
}  // namespace detail

/// The dtype that stores T.
template <class T>
inline constexpr DType dtype_of = detail::dtype_for<std::remove_cv_t<T>>();

}  // namespace troupe
