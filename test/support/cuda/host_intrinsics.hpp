// CUDA's device functions that need no other thread: atomics, bits, conversions and fast math.
//
// host_grid.hpp includes it. The overloads are nvcc's, so that a call which nvcc refuses does not
// compile here. Results of the fast functions are the exact ones.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <math.h>

// ---- memory

template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
void __stcg(T* p, std::type_identity_t<T> value) {
  *p = value;
}
template <class T>
void __stcs(T* p, std::type_identity_t<T> value) {
  *p = value;
}

// x86 keeps the order of stores, so that the compiler alone must keep it.
inline void __threadfence() { asm volatile("" ::: "memory"); }
inline void __threadfence_block() { asm volatile("" ::: "memory"); }
inline void __threadfence_system() { asm volatile("" ::: "memory"); }
inline void __nanosleep(unsigned) {}

/// Decides a conditional node of a graph: a handle of fake_cuda is the condition's address.
inline void cudaGraphSetConditional(unsigned long long handle, unsigned value) {
  __atomic_store_n(reinterpret_cast<unsigned*>(handle), value, __ATOMIC_RELAXED);
}

// ---- atomics: relaxed, as on the device

namespace host_grid {

template <class T, class... U>
concept OneOf = (std::same_as<T, U> || ...);

/// Replaces *p by next(*p) in one step; returns the earlier value.
template <class T, class F>
T update(T* p, F next) {
  T old, value;
  __atomic_load(p, &old, __ATOMIC_RELAXED);
  do {
    value = next(old);
  } while (!__atomic_compare_exchange(p, &old, &value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}

template <class T>
concept Added = OneOf<T, int, unsigned, unsigned long long, float, double>;
template <class T>
concept Ordered = OneOf<T, int, unsigned, long long, unsigned long long>;
template <class T>
concept Bits = OneOf<T, int, unsigned, unsigned long long>;
template <class T>
concept Exchanged = OneOf<T, int, unsigned, unsigned long long, float>;
template <class T>
concept Compared = OneOf<T, int, unsigned, unsigned long long, unsigned short>;

}  // namespace host_grid

template <host_grid::Added T>
T atomicAdd(T* p, std::type_identity_t<T> by) {
  return host_grid::update(p, [by](T x) {
    if constexpr (std::same_as<T, int>)
      return static_cast<int>(static_cast<unsigned>(x) + static_cast<unsigned>(by));
    else return x + by;
  });
}
template <host_grid::OneOf<int, unsigned> T>
T atomicSub(T* p, std::type_identity_t<T> by) {
  return host_grid::update(p, [by](T x) {
    return static_cast<T>(static_cast<unsigned>(x) - static_cast<unsigned>(by));
  });
}
template <host_grid::Ordered T>
T atomicMin(T* p, std::type_identity_t<T> value) {
  return host_grid::update(p, [value](T x) { return value < x ? value : x; });
}
template <host_grid::Ordered T>
T atomicMax(T* p, std::type_identity_t<T> value) {
  return host_grid::update(p, [value](T x) { return value > x ? value : x; });
}
template <host_grid::Bits T>
T atomicAnd(T* p, std::type_identity_t<T> value) {
  return host_grid::update(p, [value](T x) { return x & value; });
}
template <host_grid::Bits T>
T atomicOr(T* p, std::type_identity_t<T> value) {
  return host_grid::update(p, [value](T x) { return x | value; });
}
template <host_grid::Bits T>
T atomicXor(T* p, std::type_identity_t<T> value) {
  return host_grid::update(p, [value](T x) { return x ^ value; });
}
template <host_grid::Exchanged T>
T atomicExch(T* p, std::type_identity_t<T> value) {
  return host_grid::update(p, [value](T) { return value; });
}
template <host_grid::Compared T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  __atomic_compare_exchange(p, &expected, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
inline unsigned atomicInc(unsigned* p, unsigned limit) {
  return host_grid::update(p, [limit](unsigned x) { return x >= limit ? 0 : x + 1; });
}

// ---- bits

inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) {
  return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; ++bit) reversed |= (x >> bit & 1u) << (31 - bit);
  return reversed;
}
inline int __mulhi(int a, int b) { return static_cast<int>((static_cast<long long>(a) * b) >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>((static_cast<Wide>(a) * b) >> 64);
}

// ---- conversions in the default rounding

inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
inline double __ll2double_rn(long long x) { return static_cast<double>(x); }
inline double __ull2double_rn(unsigned long long x) { return static_cast<double>(x); }

// ---- arithmetic that nvcc does not contract, and fast functions

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __saturatef(float x) { return x > 1 ? 1 : x > 0 ? x : 0; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }

// ---- min and max: one of these types each, or signed beside unsigned; a NaN loses

inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(float a, double b) { return fmin(a, b); }
inline double max(float a, double b) { return fmax(a, b); }
inline double min(double a, float b) { return fmin(a, b); }
inline double max(double a, float b) { return fmax(a, b); }

#define HOST_GRID_MIN_MAX(R, A, B)                                                        \
  inline R min(A a, B b) {                                                                \
    return static_cast<R>(a) < static_cast<R>(b) ? static_cast<R>(a) : static_cast<R>(b); \
  }                                                                                       \
  inline R max(A a, B b) {                                                                \
    return static_cast<R>(a) > static_cast<R>(b) ? static_cast<R>(a) : static_cast<R>(b); \
  }
#define HOST_GRID_INTEGERS(S, U) \
  HOST_GRID_MIN_MAX(S, S, S)     \
  HOST_GRID_MIN_MAX(U, U, U)     \
  HOST_GRID_MIN_MAX(U, S, U)     \
  HOST_GRID_MIN_MAX(U, U, S)
HOST_GRID_INTEGERS(int, unsigned)
HOST_GRID_INTEGERS(long, unsigned long)
HOST_GRID_INTEGERS(long long, unsigned long long)
#undef HOST_GRID_INTEGERS
#undef HOST_GRID_MIN_MAX
