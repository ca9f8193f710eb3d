// Shared code of the level files: loops over a tile. Everything here has internal linkage, so that
// each level keeps its own copy.
//
// Loops of correctly rounded operations give the same bits vectorised or not, whatever n; no
// multiply-add is contracted (see TroupeFolder.cmake). Approximations live in functions.cpp, which
// computes whole packets only.
#pragma once

#include <troupe/devices/cpu/level.hpp>

// Lets the compiler turn branches into selects; it never changes a result.
#pragma GCC optimize("no-trapping-math")

#define TROUPE_JOIN2(a, b) a##b
#define TROUPE_JOIN(a, b) TROUPE_JOIN2(a, b)
#define TROUPE_FILL(part) TROUPE_JOIN(fill_##part##_, TROUPE_LEVEL)

namespace troupe::cpu {
namespace {

using Bool = unsigned char;

/// As complex elements lie in memory.
template <class T>
struct Complex {
  T re, im;
};

template <class T>
constexpr DType dtype_at() {
  if constexpr (__is_same(T, float)) return DType::f32;
  else if constexpr (__is_same(T, double)) return DType::f64;
  else if constexpr (__is_same(T, std::int8_t)) return DType::i8;
  else if constexpr (__is_same(T, std::int16_t)) return DType::i16;
  else if constexpr (__is_same(T, std::int32_t)) return DType::i32;
  else if constexpr (__is_same(T, std::int64_t)) return DType::i64;
  else if constexpr (__is_same(T, std::uint8_t)) return DType::u8;
  else if constexpr (__is_same(T, std::uint16_t)) return DType::u16;
  else if constexpr (__is_same(T, std::uint32_t)) return DType::u32;
  else return DType::u64;
}

// One element, as a loop's counter is: the way past the vector loops would take several times what
// it computes.

template <class Out, class In, Out (*f)(In)>
void unary(void* dst, const void* a, const void*, const void*, std::int64_t n) {
  Out* d = static_cast<Out*>(dst);
  const In* x = static_cast<const In*>(a);
  if (n == 1) {
    *d = f(*x);
    return;
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) d[i] = f(x[i]);
}

template <class Out, class In, Out (*f)(In, In)>
void binary(void* dst, const void* a, const void* b, const void*, std::int64_t n) {
  Out* d = static_cast<Out*>(dst);
  const In* x = static_cast<const In*>(a);
  const In* y = static_cast<const In*>(b);
  if (n == 1) {
    *d = f(*x, *y);
    return;
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) d[i] = f(x[i], y[i]);
}

template <class T>
void choose(void* dst, const void* a, const void* b, const void* c, std::int64_t n) {
  T* d = static_cast<T*>(dst);
  const Bool* condition = static_cast<const Bool*>(a);
  const T* yes = static_cast<const T*>(b);
  const T* no = static_cast<const T*>(c);
  if (n == 1) {
    *d = *condition ? *yes : *no;
    return;
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) d[i] = condition[i] ? yes[i] : no[i];
}

}  // namespace
}  // namespace troupe::cpu
