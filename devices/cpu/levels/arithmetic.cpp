// Scalar operations that are exact or correctly rounded: arithmetic, comparison, logic, bits.
//
// Integers: sums, products and negation wrap; x / 0, floor_div and mod by 0 are 0; the smallest
// value / -1 wraps; shift counts are taken modulo the width; x^-n is cut towards zero.
#include <troupe/devices/cpu/levels/tile.hpp>

namespace troupe::cpu {
namespace {

template <class T>
struct unsigned_of {
  using type = T;
};
template <>
struct unsigned_of<std::int8_t> {
  using type = std::uint8_t;
};
template <>
struct unsigned_of<std::int16_t> {
  using type = std::uint16_t;
};
template <>
struct unsigned_of<std::int32_t> {
  using type = std::uint32_t;
};
template <>
struct unsigned_of<std::int64_t> {
  using type = std::uint64_t;
};
// Arithmetic that wraps; at least 32 bits wide, because u16 * u16 would overflow an int.
template <class T>
using Wide = decltype(typename unsigned_of<T>::type{} + 0u);

template <class T>
constexpr bool is_signed = T(-1) < T(0);
template <class T>
constexpr bool is_float = T(0.5) != T(0);

// ---- all numbers
template <class T>
T add(T x, T y) {
  if constexpr (is_float<T>) return x + y;
  else return T(Wide<T>(x) + Wide<T>(y));
}
template <class T>
T sub(T x, T y) {
  if constexpr (is_float<T>) return x - y;
  else return T(Wide<T>(x) - Wide<T>(y));
}
template <class T>
T mul(T x, T y) {
  if constexpr (is_float<T>) return x * y;
  else return T(Wide<T>(x) * Wide<T>(y));
}
template <class T>
T neg(T x) {
  if constexpr (is_float<T>) return -x;
  else return T(Wide<T>(0) - Wide<T>(x));
}
template <class T>
T square(T x) {
  return mul(x, x);
}
template <class T>
Bool eq(T x, T y) {
  return x == y;
}
template <class T>
Bool ne(T x, T y) {
  return x != y;
}
template <class T>
Bool lt(T x, T y) {
  return x < y;
}
template <class T>
Bool le(T x, T y) {
  return x <= y;
}
template <class T>
Bool gt(T x, T y) {
  return x > y;
}
template <class T>
Bool ge(T x, T y) {
  return x >= y;
}
template <class T>
T min(T x, T y) {
  if constexpr (is_float<T>) return x != x ? x : y != y ? y : x < y ? x : y;
  else return x < y ? x : y;
}
template <class T>
T max(T x, T y) {
  if constexpr (is_float<T>) return x != x ? x : y != y ? y : x > y ? x : y;
  else return x > y ? x : y;
}
template <class T>
T sign(T x) {
  if constexpr (is_float<T>) return x != x ? x : T((x > 0) - (x < 0));
  else if constexpr (is_signed<T>) return T((x > 0) - (x < 0));
  else return T(x != 0);
}

// ---- floating
template <class T>
T div_float(T x, T y) {
  return x / y;
}
template <class T>
T reciprocal_float(T x) {
  return T(1) / x;
}
template <class T>
T same(T x) {
  return x;
}
template <class T>
Bool is_nan(T x) {
  return x != x;
}
inline float magnitude(float x) { return __builtin_fabsf(x); }
inline double magnitude(double x) { return __builtin_fabs(x); }
template <class T>
Bool is_inf(T x) {
  return magnitude(x) == T(__builtin_inf());
}
template <class T>
Bool is_finite(T x) {
  return magnitude(x) < T(__builtin_inf());
}

#define TROUPE_BOTH(name, builtin)                                 \
  inline float name(float x) { return __builtin_##builtin##f(x); } \
  inline double name(double x) { return __builtin_##builtin(x); }
TROUPE_BOTH(floor, floor)
TROUPE_BOTH(ceil, ceil)
TROUPE_BOTH(round, nearbyint)
TROUPE_BOTH(trunc, trunc)
TROUPE_BOTH(sqrt, sqrt)
#undef TROUPE_BOTH
template <class T>
T rsqrt(T x) {
  return T(1) / sqrt(x);
}
// The remainder of x, but for rounding that does not touch its sign.
inline double left_of(float x, float q, float y) { return double(x) - double(q) * double(y); }
inline double left_of(double x, double q, double y) { return __builtin_fma(-q, y, x); }
// x / y may have been rounded up to an integer.
template <class T>
T floor_div_float(T x, T y) {
  // above, all are integers, and the nearest is meant
  constexpr T whole = sizeof(T) == 4 ? T(0x1p24) : T(0x1p53);
  const T q = floor(x / y);
  const double left = is_inf(y) ? double(x) : left_of(x, q, y);
  return magnitude(q) < whole && left != 0 && (left < 0) != (y < 0) ? q - T(1) : q;
}
inline float remainder_of(float x, float y) { return __builtin_fmodf(x, y); }
inline double remainder_of(double x, double y) { return __builtin_fmod(x, y); }
template <class T>
T mod_float(T x, T y) {
  T r = remainder_of(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

// ---- integers. Divisors that would trap are replaced before dividing: idle lanes hold anything.
template <class T>
T div_int(T x, T y) {
  if constexpr (is_signed<T>) {
    if (y == T(-1)) return neg(x);
  }
  T safe = y == 0 ? T(1) : y;
  return y == 0 ? T(0) : T(x / safe);
}
template <class T>
T mod_int(T x, T y) {
  if (y == 0) return 0;
  if constexpr (is_signed<T>) {
    if (y == T(-1)) return 0;
    T r = T(x % y);
    return r != 0 && (r < 0) != (y < 0) ? T(r + y) : r;
  } else {
    return T(x % y);
  }
}
template <class T>
T floor_div_int(T x, T y) {
  T q = div_int(x, y);
  if constexpr (is_signed<T>) {
    if (y == 0 || y == T(-1)) return q;
    T r = T(x % y);
    return r != 0 && (r < 0) != (y < 0) ? T(q - 1) : q;
  } else {
    return q;
  }
}
template <class T>
T reciprocal_int(T x) {
  return div_int(T(1), x);
}
template <class T>
T pow_int(T x, T y) {
  if constexpr (is_signed<T>) {
    if (y < 0) return x == 1 ? T(1) : x == T(-1) ? (y & 1 ? T(-1) : T(1)) : T(0);
  }
  T result = 1;
  for (; y > 0; y = T(y >> 1), x = mul(x, x))
    if (y & 1) result = mul(result, x);
  return result;
}
template <class T>
T abs_int(T x) {
  if constexpr (is_signed<T>) return x < 0 ? neg(x) : x;
  else return x;
}
template <class T>
T bit_not(T x) {
  return T(~x);
}
template <class T>
T bit_and(T x, T y) {
  return T(x & y);
}
template <class T>
T bit_or(T x, T y) {
  return T(x | y);
}
template <class T>
T bit_xor(T x, T y) {
  return T(x ^ y);
}
template <class T>
T shift_left(T x, T y) {
  return T(Wide<T>(x) << (y & T(8 * sizeof(T) - 1)));
}
template <class T>
T shift_right(T x, T y) {
  return T(x >> (y & T(8 * sizeof(T) - 1)));
}

// ---- bool
inline Bool logical_not(Bool x) { return x == 0; }
inline Bool logical_and(Bool x, Bool y) { return (x != 0) & (y != 0); }
inline Bool logical_or(Bool x, Bool y) { return (x != 0) | (y != 0); }
inline Bool logical_xor(Bool x, Bool y) { return (x != 0) != (y != 0); }

// ---- complex
// x - y, bit for bit. From a sum beside a difference, each of a product, GCC 12 makes fused
// multiply-adds of pairs (vfmaddsub) despite -ffp-contract: so there are only sums here.
inline float difference(float x, float y) {
  return x + __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, y) ^ 0x80000000u);
}
inline double difference(double x, double y) {
  return x + __builtin_bit_cast(double, __builtin_bit_cast(std::uint64_t, y) ^ 0x8000000000000000u);
}
template <class T>
Complex<T> add_c(Complex<T> x, Complex<T> y) {
  return {x.re + y.re, x.im + y.im};
}
template <class T>
Complex<T> sub_c(Complex<T> x, Complex<T> y) {
  return {x.re - y.re, x.im - y.im};
}
template <class T>
Complex<T> mul_c(Complex<T> x, Complex<T> y) {
  return {difference(x.re * y.re, x.im * y.im), x.re * y.im + x.im * y.re};
}
// Smith's method: no overflow of |y|^2.
template <class T>
Complex<T> div_c(Complex<T> x, Complex<T> y) {
  if (magnitude(y.re) >= magnitude(y.im)) {
    T ratio = y.im / y.re, scale = y.re + y.im * ratio;
    if (y.re == 0 && y.im == 0) return {x.re / y.re, x.im / y.re};
    return {(x.re + x.im * ratio) / scale, difference(x.im, x.re * ratio) / scale};
  }
  T ratio = y.re / y.im, scale = y.re * ratio + y.im;
  return {(x.re * ratio + x.im) / scale, difference(x.im * ratio, x.re) / scale};
}
template <class T>
Complex<T> neg_c(Complex<T> x) {
  return {-x.re, -x.im};
}
template <class T>
Complex<T> reciprocal_c(Complex<T> x) {
  return div_c({T(1), T(0)}, x);
}
template <class T>
Complex<T> square_c(Complex<T> x) {
  return mul_c(x, x);
}
template <class T>
Bool eq_c(Complex<T> x, Complex<T> y) {
  return x.re == y.re && x.im == y.im;
}
template <class T>
Bool ne_c(Complex<T> x, Complex<T> y) {
  return !(x.re == y.re && x.im == y.im);
}

struct Column {
  LevelKernels& k;
  DType type;
  void operator()(ScalarOp op, TileFunction f) const { k.op[int(op)][int(type)] = f; }
};

template <class T>
void fill_numbers(const Column& set) {
  set(ScalarOp::add, binary<T, T, cpu::add<T>>);
  set(ScalarOp::sub, binary<T, T, cpu::sub<T>>);
  set(ScalarOp::mul, binary<T, T, cpu::mul<T>>);
  set(ScalarOp::neg, unary<T, T, cpu::neg<T>>);
  set(ScalarOp::square, unary<T, T, cpu::square<T>>);
  set(ScalarOp::sign, unary<T, T, cpu::sign<T>>);
  set(ScalarOp::min, binary<T, T, cpu::min<T>>);
  set(ScalarOp::max, binary<T, T, cpu::max<T>>);
  set(ScalarOp::eq, binary<Bool, T, cpu::eq<T>>);
  set(ScalarOp::ne, binary<Bool, T, cpu::ne<T>>);
  set(ScalarOp::lt, binary<Bool, T, cpu::lt<T>>);
  set(ScalarOp::le, binary<Bool, T, cpu::le<T>>);
  set(ScalarOp::gt, binary<Bool, T, cpu::gt<T>>);
  set(ScalarOp::ge, binary<Bool, T, cpu::ge<T>>);
  set(ScalarOp::select, choose<T>);
}

template <class T>
void fill_floating(const Column& set) {
  fill_numbers<T>(set);
  set(ScalarOp::div, binary<T, T, div_float<T>>);
  set(ScalarOp::reciprocal, unary<T, T, reciprocal_float<T>>);
  set(ScalarOp::abs, unary<T, T, magnitude>);
  set(ScalarOp::floor, unary<T, T, cpu::floor>);
  set(ScalarOp::ceil, unary<T, T, cpu::ceil>);
  set(ScalarOp::round, unary<T, T, cpu::round>);
  set(ScalarOp::trunc, unary<T, T, cpu::trunc>);
  set(ScalarOp::sqrt, unary<T, T, cpu::sqrt>);
  set(ScalarOp::rsqrt, unary<T, T, cpu::rsqrt<T>>);
  set(ScalarOp::floor_div, binary<T, T, floor_div_float<T>>);
  set(ScalarOp::mod, binary<T, T, mod_float<T>>);
  set(ScalarOp::is_nan, unary<Bool, T, cpu::is_nan<T>>);
  set(ScalarOp::is_inf, unary<Bool, T, cpu::is_inf<T>>);
  set(ScalarOp::is_finite, unary<Bool, T, cpu::is_finite<T>>);
}

template <class T>
void fill_integer(LevelKernels& k) {
  Column set{k, dtype_at<T>()};
  fill_numbers<T>(set);
  set(ScalarOp::div, binary<T, T, div_int<T>>);
  set(ScalarOp::reciprocal, unary<T, T, reciprocal_int<T>>);
  set(ScalarOp::abs, unary<T, T, abs_int<T>>);
  for (ScalarOp op : {ScalarOp::floor, ScalarOp::ceil, ScalarOp::round, ScalarOp::trunc})
    set(op, unary<T, T, same<T>>);
  set(ScalarOp::floor_div, binary<T, T, floor_div_int<T>>);
  set(ScalarOp::mod, binary<T, T, mod_int<T>>);
  set(ScalarOp::pow, binary<T, T, pow_int<T>>);
  set(ScalarOp::bit_not, unary<T, T, cpu::bit_not<T>>);
  set(ScalarOp::bit_and, binary<T, T, cpu::bit_and<T>>);
  set(ScalarOp::bit_or, binary<T, T, cpu::bit_or<T>>);
  set(ScalarOp::bit_xor, binary<T, T, cpu::bit_xor<T>>);
  set(ScalarOp::shift_left, binary<T, T, cpu::shift_left<T>>);
  set(ScalarOp::shift_right, binary<T, T, cpu::shift_right<T>>);
}

template <class T>
void fill_complex(const Column& set) {
  using C = Complex<T>;
  set(ScalarOp::add, binary<C, C, add_c<T>>);
  set(ScalarOp::sub, binary<C, C, sub_c<T>>);
  set(ScalarOp::mul, binary<C, C, mul_c<T>>);
  set(ScalarOp::div, binary<C, C, div_c<T>>);
  set(ScalarOp::neg, unary<C, C, neg_c<T>>);
  set(ScalarOp::reciprocal, unary<C, C, reciprocal_c<T>>);
  set(ScalarOp::square, unary<C, C, square_c<T>>);
  set(ScalarOp::eq, binary<Bool, C, eq_c<T>>);
  set(ScalarOp::ne, binary<Bool, C, ne_c<T>>);
  set(ScalarOp::select, choose<C>);
}

void fill_logic(const Column& set) {
  set(ScalarOp::logical_not, unary<Bool, Bool, cpu::logical_not>);
  set(ScalarOp::logical_and, binary<Bool, Bool, cpu::logical_and>);
  set(ScalarOp::logical_or, binary<Bool, Bool, cpu::logical_or>);
  set(ScalarOp::logical_xor, binary<Bool, Bool, cpu::logical_xor>);
  set(ScalarOp::eq, binary<Bool, Bool, cpu::eq<Bool>>);
  set(ScalarOp::ne, binary<Bool, Bool, cpu::ne<Bool>>);
  set(ScalarOp::select, choose<Bool>);
}

}  // namespace

void TROUPE_FILL(arithmetic)(LevelKernels& k) {
  fill_floating<float>({k, DType::f32});
  fill_floating<double>({k, DType::f64});
  fill_integer<std::int8_t>(k);
  fill_integer<std::int16_t>(k);
  fill_integer<std::int32_t>(k);
  fill_integer<std::int64_t>(k);
  fill_integer<std::uint8_t>(k);
  fill_integer<std::uint16_t>(k);
  fill_integer<std::uint32_t>(k);
  fill_integer<std::uint64_t>(k);
  fill_complex<float>({k, DType::c64});
  fill_complex<double>({k, DType::c128});
  fill_logic({k, DType::boolean});
}

}  // namespace troupe::cpu
