// Every scalar operation on one element, and the types of elements. NVRTC compiles this text in
// front of a printed program (print.hpp); g++ compiles the same text for tests. Under NVRTC no
// header is included: to parse one takes longer than to compile a kernel.
//
// Results agree bit for bit with the CPU device (devices/cpu/levels): integers, bool, casts,
// comparisons, + - * / sqrt, floor_div, mod, rounding, and complex + - * /. The other functions of
// f32 are within 4 units in the last place. Compile without contraction: --fmad=false,
// -ffp-contract=off.
//
// Invariant: a result depends on the operands alone.
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
typedef unsigned char boolean;
struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
struct alignas(8) c64 {
  f32 re, im;
};
struct c128 {
  f64 re, im;
};

// ---- The two compilers

#ifdef __CUDACC_RTC__
#define TROUPE_FN static __device__ __forceinline__
// The complex functions are long and seldom used.
#define TROUPE_LONG_FN static __device__ __noinline__
#define TROUPE_KERNEL(name, arguments) extern "C" __global__ void name(const arguments a)
TROUPE_FN f32 bits_to_f32(u32 b) { return __uint_as_float(b); }
TROUPE_FN u32 f32_to_bits(f32 x) { return __float_as_uint(x); }
TROUPE_FN f64 bits_to_f64(u64 b) { return __longlong_as_double(i64(b)); }
TROUPE_FN f32 widen(f16 x) {
  f32 wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
}
TROUPE_FN f16 narrow_f16(f32 x) {
  f16 narrow;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
  return narrow;
}
#else
#include <math.h>
#define TROUPE_FN static inline
#define TROUPE_LONG_FN static inline
// The kernel takes its arguments by address and runs as the thread that troupe_place names.
#define TROUPE_KERNEL(name, arguments) extern "C" void name(const arguments& a)
struct TroupePlace {
  u32 x;
};
static thread_local TroupePlace blockIdx, threadIdx, gridDim, blockDim;
extern "C" void troupe_place(u32 block, u32 thread, u32 blocks, u32 threads) {
  blockIdx.x = block, threadIdx.x = thread, gridDim.x = blocks, blockDim.x = threads;
}
TROUPE_FN f32 bits_to_f32(u32 b) { return __builtin_bit_cast(f32, b); }
TROUPE_FN u32 f32_to_bits(f32 x) { return __builtin_bit_cast(u32, x); }
TROUPE_FN f64 bits_to_f64(u64 b) { return __builtin_bit_cast(f64, b); }
TROUPE_FN f32 widen(f16 x) { return f32(__builtin_bit_cast(_Float16, x)); }
TROUPE_FN f16 narrow_f16(f32 x) { return __builtin_bit_cast(f16, _Float16(x)); }
#endif

// ---- Arguments of a kernel (form.hpp), and four elements as one access

template <class T>
struct Input {
  const T* data;
  union {
    T value;
    u8 bytes[16];
  };
};
template <class T>
struct StridedInput {
  const T* data;
  union {
    T value;
    u8 bytes[16];
  };
  i64 stride[8];
};
template <class T>
struct StridedResult {
  T* data;
  i64 stride[8];
};
template <class T>
struct alignas(sizeof(T) < 4 ? 4 * sizeof(T) : 16) Four {
  T at[4];
};

// ---- Types

template <class T, class F>
constexpr bool is_same = false;
template <class T>
constexpr bool is_same<T, T> = true;
template <class T>
constexpr bool is_real_float = is_same<T, f32> || is_same<T, f64>;
template <class T>
constexpr bool is_small_float = is_same<T, f16> || is_same<T, bf16>;
template <class T>
constexpr bool is_complex = is_same<T, c64> || is_same<T, c128>;
template <class T>
constexpr bool is_signed = T(-1) < T(0);
template <class T>
struct PartOf {
  typedef f32 type;
};
template <>
struct PartOf<c128> {
  typedef f64 type;
};
template <class T>
using Part = typename PartOf<T>::type;
// Integer arithmetic that wraps.
template <class T>
struct WrappedOf {
  typedef u32 type;
};
template <>
struct WrappedOf<i64> {
  typedef u64 type;
};
template <>
struct WrappedOf<u64> {
  typedef u64 type;
};
template <class T>
using Wrapped = typename WrappedOf<T>::type;

TROUPE_FN f64 infinity() { return bits_to_f64(0x7ff0000000000000ull); }
TROUPE_FN f64 not_a_number() { return bits_to_f64(0x7ff8000000000000ull); }
TROUPE_FN f32 magnitude(f32 x) { return fabsf(x); }
TROUPE_FN f64 magnitude(f64 x) { return fabs(x); }

// ---- Casts

TROUPE_FN f32 widen(bf16 x) { return bits_to_f32(u32(x.bits) << 16); }
TROUPE_FN bf16 narrow_bf16(f32 x) {
  const u32 word = f32_to_bits(x);
  return {u16(x != x ? (word >> 16) | 0x40 : (word + 0x7FFF + ((word >> 16) & 1)) >> 16)};
}
// A number as f32, rounded to odd: a further rounding to fewer bits gives the bits of one rounding
// (Boldo and Melquiond, 2008).
template <class T>
TROUPE_FN f32 to_odd(T x) {
  if constexpr (is_same<T, f32>) {
    return x;
  } else if constexpr (is_same<T, f64>) {
    const f32 near = f32(x);
    if (f64(near) == x || x != x) return near;
    return bits_to_f32((f32_to_bits(near) - (f64(fabsf(near)) > fabs(x))) | 1);
  } else {
    if constexpr (sizeof(T) == 8) {
      const T low = 0xFFF, top = T(1) << 53;
      const bool is_large = x > top || (is_signed<T> && x < T(0) - top);
      if (is_large && (x & low)) x = T((x & ~low) | (low + 1));
    }
    return to_odd(f64(x));
  }
}
// Cuts towards zero and saturates; NaN becomes 0.
template <class T, class F>
TROUPE_FN T saturate(F x) {
  constexpr int bits = 8 * sizeof(T);
  constexpr F end = F(u64(1) << (bits - 1)) * (is_signed<T> ? 1 : 2);
  constexpr T top = T(is_signed<T> ? (u64(1) << (bits - 1)) - 1 : ~u64(0) >> (64 - bits));
  constexpr T bottom = is_signed<T> ? T(u64(1) << (bits - 1)) : T(0);
  constexpr F begin = is_signed<T> ? -end : F(0);
  return x != x ? T(0) : x >= end ? top : !(x > begin) ? bottom : T(x);
}
// To any type but boolean, which is u8 here: a boolean operand comes as u8(x != 0).
template <class T, class F>
TROUPE_FN T op_cast(F x) {
  if constexpr (is_same<T, F>) return x;
  else if constexpr (is_complex<F> && is_complex<T>) return {Part<T>(x.re), Part<T>(x.im)};
  else if constexpr (is_complex<F>) return op_cast<T>(x.re);
  else if constexpr (is_complex<T>) return {op_cast<Part<T>>(x), 0};
  else if constexpr (is_small_float<F>) return op_cast<T>(widen(x));
  else if constexpr (is_same<T, f16>) return narrow_f16(to_odd(x));
  else if constexpr (is_same<T, bf16>) return narrow_bf16(to_odd(x));
  else if constexpr (is_real_float<F> && !is_real_float<T>) return saturate<T>(x);
  else return T(x);
}
template <class F>
TROUPE_FN boolean op_to_bool(F x) {
  if constexpr (is_complex<F>) return x.re != 0 || x.im != 0;
  else if constexpr (is_small_float<F>) return widen(x) != 0;
  else return x != 0;
}

// ---- All numbers

template <class T>
TROUPE_FN T op_add(T x, T y) {
  if constexpr (is_complex<T>) return {x.re + y.re, x.im + y.im};
  else if constexpr (is_real_float<T>) return x + y;
  else return T(Wrapped<T>(x) + Wrapped<T>(y));
}
template <class T>
TROUPE_FN T op_sub(T x, T y) {
  if constexpr (is_complex<T>) return {x.re - y.re, x.im - y.im};
  else if constexpr (is_real_float<T>) return x - y;
  else return T(Wrapped<T>(x) - Wrapped<T>(y));
}
template <class T>
TROUPE_FN T op_mul(T x, T y) {
  if constexpr (is_complex<T>) return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
  else if constexpr (is_real_float<T>) return x * y;
  else return T(Wrapped<T>(x) * Wrapped<T>(y));
}
template <class T>
TROUPE_FN T op_neg(T x) {
  if constexpr (is_complex<T>) return {-x.re, -x.im};
  else if constexpr (is_real_float<T>) return -x;
  else return T(Wrapped<T>(0) - Wrapped<T>(x));
}
template <class T>
TROUPE_FN T op_square(T x) {
  return op_mul(x, x);
}
// Integers: x / 0 is 0, the smallest value / -1 wraps. Complex numbers: Smith's method, in which
// |y|^2 does not overflow.
template <class T>
TROUPE_FN T op_div(T x, T y) {
  if constexpr (is_complex<T>) {
    if (magnitude(y.re) >= magnitude(y.im)) {
      if (y.re == 0 && y.im == 0) return {x.re / y.re, x.im / y.re};
      const Part<T> ratio = y.im / y.re, scale = y.re + y.im * ratio;
      return {(x.re + x.im * ratio) / scale, (x.im - x.re * ratio) / scale};
    }
    const Part<T> ratio = y.re / y.im, scale = y.re * ratio + y.im;
    return {(x.re * ratio + x.im) / scale, (x.im * ratio - x.re) / scale};
  } else if constexpr (is_real_float<T>) {
    return x / y;
  } else {
    return y == 0 ? T(0) : is_signed<T> && y == T(-1) ? op_neg(x) : T(x / y);
  }
}
template <class T>
TROUPE_FN T op_reciprocal(T x) {
  if constexpr (is_complex<T>) return op_div(T{1, 0}, x);
  else return op_div(T(1), x);
}
template <class T>
TROUPE_FN boolean op_eq(T x, T y) {
  if constexpr (is_complex<T>) return x.re == y.re && x.im == y.im;
  else return x == y;
}
template <class T>
TROUPE_FN boolean op_ne(T x, T y) {
  return !op_eq(x, y);
}
template <class T>
TROUPE_FN boolean op_lt(T x, T y) {
  return x < y;
}
template <class T>
TROUPE_FN boolean op_le(T x, T y) {
  return x <= y;
}
template <class T>
TROUPE_FN boolean op_gt(T x, T y) {
  return x > y;
}
template <class T>
TROUPE_FN boolean op_ge(T x, T y) {
  return x >= y;
}
template <class T>
TROUPE_FN T op_min(T x, T y) {
  return x != x ? x : y != y ? y : x < y ? x : y;
}
template <class T>
TROUPE_FN T op_max(T x, T y) {
  return x != x ? x : y != y ? y : x > y ? x : y;
}
template <class T>
TROUPE_FN T op_sign(T x) {
  return x != x ? x : T((x > T(0)) - (x < T(0)));
}
template <class T>
TROUPE_FN T op_select(boolean condition, T yes, T no) {
  return condition ? yes : no;
}
template <class T>
TROUPE_FN boolean op_is_nan(T x) {
  return x != x;
}
template <class T>
TROUPE_FN boolean op_is_inf(T x) {
  return magnitude(x) == T(infinity());
}
template <class T>
TROUPE_FN boolean op_is_finite(T x) {
  return magnitude(x) < T(infinity());
}

// ---- Quotients and remainders that take the divisor's sign; by 0 they are 0 for integers

TROUPE_FN f32 remainder_of(f32 x, f32 y) { return fmodf(x, y); }
TROUPE_FN f64 remainder_of(f64 x, f64 y) { return fmod(x, y); }
template <class T>
TROUPE_FN T op_mod(T x, T y) {
  if constexpr (is_real_float<T>) {
    const T r = remainder_of(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
  } else {
    if (y == 0 || (is_signed<T> && y == T(-1))) return 0;
    const T r = T(x % y);
    return r != 0 && (r < 0) != (y < 0) ? T(r + y) : r;
  }
}
// What the quotient q leaves of x, but for rounding that does not touch its sign.
TROUPE_FN f64 left_of(f32 x, f32 q, f32 y) { return f64(x) - f64(q) * f64(y); }
TROUPE_FN f64 left_of(f64 x, f64 q, f64 y) { return fma(-q, y, x); }
TROUPE_FN f32 op_floor(f32 x) { return floorf(x); }
TROUPE_FN f64 op_floor(f64 x) { return floor(x); }
template <class T>
TROUPE_FN T op_floor_div(T x, T y) {
  if constexpr (is_real_float<T>) {
    // x / y may have been rounded up to an integer; from `whole` on all are integers
    const T q = op_floor(x / y), whole = T(sizeof(T) == 4 ? 0x1p24 : 0x1p53);
    const f64 left = op_is_inf(y) ? f64(x) : left_of(x, q, y);
    return magnitude(q) < whole && left != 0 && (left < 0) != (y < 0) ? q - T(1) : q;
  } else {
    const T q = op_div(x, y);
    if (y == 0 || (is_signed<T> && y == T(-1))) return q;
    const T r = T(x % y);
    return r != 0 && (r < 0) != (y < 0) ? T(q - 1) : q;
  }
}

// ---- Integers and bool

template <class T>
TROUPE_FN T op_pow(T x, T y) {
  if (y < 0) return x == 1 ? T(1) : x == T(-1) ? (y & 1 ? T(-1) : T(1)) : T(0);
  T r = 1;
  for (; y > 0; y = T(y >> 1), x = op_mul(x, x))
    if (y & 1) r = op_mul(r, x);
  return r;
}
template <class T>
TROUPE_FN T op_abs(T x) {
  return x < T(0) ? op_neg(x) : x;
}
template <class T>
TROUPE_FN T op_floor(T x) {
  return x;
}
template <class T>
TROUPE_FN T op_ceil(T x) {
  return x;
}
template <class T>
TROUPE_FN T op_round(T x) {
  return x;
}
template <class T>
TROUPE_FN T op_trunc(T x) {
  return x;
}
template <class T>
TROUPE_FN T op_bit_not(T x) {
  return T(~x);
}
template <class T>
TROUPE_FN T op_bit_and(T x, T y) {
  return T(x & y);
}
template <class T>
TROUPE_FN T op_bit_or(T x, T y) {
  return T(x | y);
}
template <class T>
TROUPE_FN T op_bit_xor(T x, T y) {
  return T(x ^ y);
}
template <class T>
TROUPE_FN T op_shift_left(T x, T y) {
  return T(Wrapped<T>(x) << (y & T(8 * sizeof(T) - 1)));
}
template <class T>
TROUPE_FN T op_shift_right(T x, T y) {
  return T(x >> (y & T(8 * sizeof(T) - 1)));
}
TROUPE_FN boolean op_logical_not(boolean x) { return x == 0; }
TROUPE_FN boolean op_logical_and(boolean x, boolean y) { return (x != 0) & (y != 0); }
TROUPE_FN boolean op_logical_or(boolean x, boolean y) { return (x != 0) | (y != 0); }
TROUPE_FN boolean op_logical_xor(boolean x, boolean y) { return (x != 0) != (y != 0); }

// ---- Functions of f32 and f64

#define TROUPE_BOTH(name, of_f32, of_f64)           \
  TROUPE_FN f32 op_##name(f32 x) { return of_f32; } \
  TROUPE_FN f64 op_##name(f64 x) { return of_f64; }
#define TROUPE_MATH(name) TROUPE_BOTH(name, name##f(x), name(x))
TROUPE_BOTH(abs, fabsf(x), fabs(x))
TROUPE_BOTH(ceil, ceilf(x), ceil(x))
TROUPE_BOTH(round, rintf(x), rint(x))
TROUPE_BOTH(trunc, truncf(x), trunc(x))
TROUPE_BOTH(sqrt, sqrtf(x), sqrt(x))
TROUPE_BOTH(rsqrt, 1.0f / sqrtf(x), 1.0 / sqrt(x))
TROUPE_MATH(exp)
TROUPE_MATH(expm1)
TROUPE_MATH(log)
TROUPE_MATH(log1p)
TROUPE_MATH(sin)
TROUPE_MATH(cos)
TROUPE_MATH(tan)
TROUPE_MATH(asin)
TROUPE_MATH(acos)
TROUPE_MATH(atan)
TROUPE_MATH(sinh)
TROUPE_MATH(cosh)
TROUPE_MATH(tanh)
TROUPE_MATH(asinh)
TROUPE_MATH(acosh)
TROUPE_MATH(atanh)
TROUPE_MATH(erf)
TROUPE_MATH(erfc)
#undef TROUPE_MATH
#undef TROUPE_BOTH
TROUPE_FN f32 op_pow(f32 x, f32 y) { return powf(x, y); }
TROUPE_FN f64 op_pow(f64 x, f64 y) { return pow(x, y); }
TROUPE_FN f32 op_atan2(f32 x, f32 y) { return atan2f(x, y); }
TROUPE_FN f64 op_atan2(f64 x, f64 y) { return atan2(x, y); }
// Of exp(-|x|), which does not overflow and keeps the digits of both tails.
template <class T>
TROUPE_FN T op_sigmoid(T x) {
  const T e = op_exp(-magnitude(x));
  return (x < 0 ? e : T(1)) / (T(1) + e);
}

// ---- gelu: x times the normal distribution below it, and the slope of that

// The tail of the distribution, for a in [0.5, 15]: its share below -a is
//   share (1 + more) 2^(first + second),
// where 1 + more is from exp(-a^2 / 2), and (a + 3) share exp(a^2 / 2) a polynomial in
// q = (a - 3) / (a + 3). The few steps in f64 are those whose rounding would show.
struct Tail {
  f64 share;
  f32 more, first, second;  // the last two: powers of two, none subnormal
};
TROUPE_FN Tail tail_from(f32 a) {
  const f64 sum = f64(a) + 3.0;
  const f32 near = 1.0f / f32(sum), q = fmaf(-6.0f, near, 1.0f);
  const f64 inverse = fma(f64(near), fma(-sum, f64(near), 1.0), f64(near));
  f32 p = fmaf(5.549187172e-5f, q, 0.0001333239542f);
  p = fmaf(p, q, -0.0002447093208f);
  p = fmaf(p, q, -0.001034476551f);
  p = fmaf(p, q, 0.001024157324f);
  p = fmaf(p, q, 0.006969920151f);
  p = fmaf(p, q, -0.01046228897f);
  p = fmaf(p, q, -0.04726276192f);
  p = fmaf(p, q, 0.2300176767f);
  p = fmaf(p, q, -0.5093319888f);
  // -a^2 / 2 = n ln 2 + r
  const f32 square = -0.5f * a * a, rest = fmaf(-0.5f * a, a, -square);
  const f32 n = rintf(square * 1.44269504f);
  const f32 r = fmaf(n, -1.42860677e-6f, fmaf(n, -0.693145752f, square)) + rest;
  f32 e = fmaf(0.00139263919f, r, 0.008363345811f);
  e = fmaf(e, r, 0.04166655336f);
  e = fmaf(e, r, 0.1666657599f);
  e = fmaf(e, r, 0.5f);
  const i32 whole = i32(n), half = whole / 2;
  return {fma(f64(p), f64(q), 0.7290836907) * inverse, fmaf(e * r, r, r),
          bits_to_f32(u32(half + 127) << 23), bits_to_f32(u32(whole - half + 127) << 23)};
}
TROUPE_FN f32 op_gelu(f32 x) {
  if (fabsf(x) < 0.7f) {
    const f32 s = x * x;
    f32 p = fmaf(-8.256123263e-6f, s, 0.0001145994021f);
    p = fmaf(p, s, -0.00118705416f);
    p = fmaf(p, s, 0.009973516146f);
    p = fmaf(p, s, -0.06649037783f);
    p = fmaf(p, s, 0.3989422804f);
    return x * fmaf(p, x, 0.5f);
  }
  const f32 a = fminf(fabsf(x), 15.0f);
  const Tail tail = tail_from(a);
  const f64 whole = tail.share * a;
  const f32 part = f32(fma(whole, f64(tail.more), whole)) * tail.first * tail.second;
  return x != x ? x : x < 0 ? -part : x - part;
}
TROUPE_FN f32 op_gelu_slope(f32 x) {
  if (fabsf(x) < 0.8f) {
    const f32 s = x * x;
    f32 p = fmaf(-4.358533942e-7f, s, 8.753171524e-6f);
    p = fmaf(p, s, -0.0001125494581f);
    p = fmaf(p, s, 0.001153736677f);
    p = fmaf(p, s, -0.009498366495f);
    p = fmaf(p, s, 0.05984128771f);
    p = fmaf(p, s, -0.2659615159f);
    return f32(fma(fma(f64(p), f64(s), 0.79788456080286536), f64(x), 0.5));
  }
  const f32 a = fminf(fabsf(x), 15.0f);
  const Tail tail = tail_from(a);
  const f64 whole = fma(-0.39894228040143268, f64(a), tail.share);
  const f32 part = f32(fma(whole, f64(tail.more), whole)) * tail.first * tail.second;
  return x != x ? x : x < 0 ? part : 1.0f - part;
}

// f64: as devices/cpu/levels/functions.cpp. The density without its factor 1 / sqrt(2 pi), as a
// product of which no factor is subnormal. The square of the nearest 32nd is exact.
struct Bell {
  f64 most, more, rest;
};
TROUPE_FN Bell bell_of(f64 x) {
  const f64 whole = rint(x * 32) / 32, square = whole * whole;
  const bool is_whole = square < 1300;
  const f64 most = exp(square / (is_whole ? -2 : -4));
  return {most, is_whole ? 1 : most, exp((x - whole) * (x + whole) / -2)};
}
// -x times the distribution below x over the density there, for x <= -25: an asymptotic series.
TROUPE_FN f64 mills_of(f64 x) {
  const f64 t = 1 / (x * x);
  f64 sum = 1;
  for (int k = 19; k > 0; k -= 2) sum = 1 - k * t * sum;
  return sum;
}
// For x in [-25, 9]. -x / sqrt(2) is rounded, by which erfc would lose digits.
TROUPE_FN f64 normal_below(f64 x) {
  const f64 root = 0.70710678118654757, root_rest = -4.8336466567264567e-17, z = x * -root,
            off = fma(x, -root, -z) - x * root_rest;
  return 0.5 * erfc(z) - off * 0.564189583547756287 * exp(-z * z);
}
TROUPE_FN f64 op_gelu(f64 x) {
  if (x >= -25) return x > 9 ? x : x * normal_below(x);
  if (!(x > -40)) return x != x ? x : -0.0;
  const Bell bell = bell_of(x);
  return -0.398942280401432678 * mills_of(x) * (bell.most * bell.rest) * bell.more;
}
TROUPE_FN f64 op_gelu_slope(f64 x) {
  const f64 density = 0.398942280401432678;
  if (x > 40) return 1;
  if (!(x > -40)) return x != x ? x : -0.0;
  const Bell bell = bell_of(x);
  if (x < -25) return density * (x - mills_of(x) / x) * (bell.most * bell.rest) * bell.more;
  const f64 below = x > 9 ? 1 : normal_below(x);
  return below + x * (density * (bell.most * bell.rest) * bell.more);
}
