// Transcendental functions: packets where packet.hpp has them for f32, else libm's, an element at a
// time. Either way an element's result does not depend on where it stands.
#if !defined(__clang__)
// Steps of one packet wait for each other, and a core looks ahead some hundred instructions only:
// the compiler interleaves the steps of four packets.
#pragma GCC optimize("schedule-insns", "sched-pressure")
#endif
#include <troupe/devices/cpu/levels/packet.hpp>

namespace troupe::cpu {
namespace {

#define TROUPE_BOTH(name)                                       \
  inline float name(float x) { return __builtin_##name##f(x); } \
  inline double name(double x) { return __builtin_##name(x); }
TROUPE_BOTH(exp)
TROUPE_BOTH(expm1)
TROUPE_BOTH(log)
TROUPE_BOTH(log1p)
TROUPE_BOTH(sin)
TROUPE_BOTH(cos)
TROUPE_BOTH(tan)
TROUPE_BOTH(asin)
TROUPE_BOTH(acos)
TROUPE_BOTH(atan)
TROUPE_BOTH(sinh)
TROUPE_BOTH(cosh)
TROUPE_BOTH(tanh)
TROUPE_BOTH(asinh)
TROUPE_BOTH(acosh)
TROUPE_BOTH(atanh)
TROUPE_BOTH(erf)
TROUPE_BOTH(erfc)
#undef TROUPE_BOTH
inline float pow(float x, float y) { return __builtin_powf(x, y); }
inline double pow(double x, double y) { return __builtin_pow(x, y); }
inline float atan2(float x, float y) { return __builtin_atan2f(x, y); }
inline double atan2(double x, double y) { return __builtin_atan2(x, y); }
inline double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
inline float sigmoid(float x) { return float(sigmoid(double(x))); }

// ---- gelu: x times the normal distribution below it, and the slope of that

// The density without its factor 1 / sqrt(2 pi), as a product of which no factor is subnormal. The
// square of the nearest 32nd is exact.
struct Bell {
  double most, more, rest;
};
inline Bell bell_of(double x) {
  const double whole = (x * 32 + 6755399441055744.0 - 6755399441055744.0) / 32,
               square = whole * whole;
  const bool is_whole = square < 1300;
  const double most = exp(square / (is_whole ? -2 : -4));
  return {most, is_whole ? 1 : most, exp((x - whole) * (x + whole) / -2)};
}
constexpr double kDensity = 0.398942280401432678;  // at 0
// From here on down the distribution comes from the density by an asymptotic series.
constexpr double kFarBelow = -25;

// -x times the distribution below x over the density there, for x <= kFarBelow.
inline double mills_of(double x) {
  const double t = 1 / (x * x);
  double sum = 1;
  for (int k = 19; k > 0; k -= 2) sum = 1 - k * t * sum;
  return sum;
}
// For x in [kFarBelow, 9]. -x / sqrt(2) is rounded, by which erfc would lose digits.
inline double normal_below(double x) {
  constexpr double root = 0.70710678118654757, root_rest = -4.8336466567264567e-17;
  const double z = x * -root, off = __builtin_fma(x, -root, -z) - x * root_rest;
  return 0.5 * erfc(z) - off * 0.564189583547756287 * exp(-z * z);
}
inline double gelu(double x) {
  if (x >= kFarBelow) return x > 9 ? x : x * normal_below(x);
  if (!(x > -40)) return x != x ? x : -0.0;
  const Bell bell = bell_of(x);
  return -kDensity * mills_of(x) * (bell.most * bell.rest) * bell.more;
}
inline double gelu_slope(double x) {
  if (x > 40) return 1;
  if (!(x > -40)) return x != x ? x : -0.0;
  const Bell bell = bell_of(x);
  if (x < kFarBelow) return kDensity * (x - mills_of(x) / x) * (bell.most * bell.rest) * bell.more;
  const double below = x > 9 ? 1 : normal_below(x);
  return below + x * (kDensity * (bell.most * bell.rest) * bell.more);
}
inline float gelu(float x) { return float(gelu(double(x))); }
inline float gelu_slope(float x) { return float(gelu_slope(double(x))); }

// ---- complex: libm's functions, which handle the cuts and infinities

template <class C, class T>
C joined_as(Complex<T> z) {
  C c;
  __real__ c = z.re;
  __imag__ c = z.im;
  return c;
}
inline _Complex float joined(Complex<float> z) { return joined_as<_Complex float>(z); }
inline _Complex double joined(Complex<double> z) { return joined_as<_Complex double>(z); }
inline Complex<float> parted(_Complex float c) { return {__real__ c, __imag__ c}; }
inline Complex<double> parted(_Complex double c) { return {__real__ c, __imag__ c}; }

#define TROUPE_COMPLEX(name)                                                                       \
  inline Complex<float> name(Complex<float> z) { return parted(__builtin_c##name##f(joined(z))); } \
  inline Complex<double> name(Complex<double> z) { return parted(__builtin_c##name(joined(z))); }
TROUPE_COMPLEX(exp)
TROUPE_COMPLEX(log)
TROUPE_COMPLEX(sqrt)
TROUPE_COMPLEX(sin)
TROUPE_COMPLEX(cos)
TROUPE_COMPLEX(tan)
TROUPE_COMPLEX(asin)
TROUPE_COMPLEX(acos)
TROUPE_COMPLEX(atan)
TROUPE_COMPLEX(sinh)
TROUPE_COMPLEX(cosh)
TROUPE_COMPLEX(tanh)
TROUPE_COMPLEX(asinh)
TROUPE_COMPLEX(acosh)
TROUPE_COMPLEX(atanh)
#undef TROUPE_COMPLEX
inline _Complex float pow_of(_Complex float x, _Complex float y) { return __builtin_cpowf(x, y); }
inline _Complex double pow_of(_Complex double x, _Complex double y) { return __builtin_cpow(x, y); }
/// x^0 is 1, and 0^y is 0 where y's real part is above 0: there libm, which goes by way of log(x),
/// makes NaN.
template <class T>
Complex<T> pow_c(Complex<T> x, Complex<T> y) {
  if (y.re == 0 && y.im == 0) return {1, 0};
  if (x.re == 0 && x.im == 0 && y.re > 0) return {0, 0};
  return parted(pow_of(joined(x), joined(y)));
}
template <class T>
Complex<T> rsqrt_c(Complex<T> z) {
  return parted(T(1) / joined(sqrt(z)));
}
/// By its parts: e^x cos(y) - 1 is (e^x - 1) cos(y) - 2 sin(y / 2)^2, of which neither part is lost
/// near zero.
template <class T>
Complex<T> expm1_c(Complex<T> z) {
  const T half = sin(z.im / 2);
  return {expm1(z.re) * cos(z.im) - 2 * half * half, z.im == 0 ? z.im : exp(z.re) * sin(z.im)};
}
/// Near zero |1 + z|^2 is 1 + x (2 + x) + y^2; elsewhere libm's logarithm is as exact.
template <class T>
Complex<T> log1p_c(Complex<T> z) {
  const bool is_near = __builtin_fabs(double(z.re)) < 0.5 && __builtin_fabs(double(z.im)) < 0.5;
  if (!is_near) return log(Complex<T>{1 + z.re, z.im});
  return {log1p(z.re * (2 + z.re) + z.im * z.im) / 2, atan2(z.im, 1 + z.re)};
}
template <class T>
Complex<T> sigmoid_c(Complex<T> z) {
  if (z.re < 0) {
    const auto e = joined(exp(z));
    return parted(e / (T(1) + e));
  }
  return parted(T(1) / (T(1) + joined(exp(Complex<T>{-z.re, -z.im}))));
}

/// Packets from 0 to n, the last one whole: buffers are padded. A lone scalar is spread here, since
/// a packet loaded right behind narrower stores would wait for them.
template <Floats (*f)(Floats), int together = 1>
void packets(void* dst, const void* a, const void*, const void*, std::int64_t n) {
  float* d = static_cast<float*>(dst);
  const float* x = static_cast<const float*>(a);
  if (n == 1) return store(d, f(all(*x)));
  std::int64_t i = 0;
  for (; i + together * kPacket <= n; i += together * kPacket) {
    Floats y[together];
#pragma GCC unroll 4
    for (int k = 0; k < together; ++k) y[k] = f(load_floats(x + i + k * kPacket));
#pragma GCC unroll 4
    for (int k = 0; k < together; ++k) store(d + i + k * kPacket, y[k]);
  }
  for (; i < n; i += kPacket) store(d + i, f(load_floats(x + i)));
}

template <Floats (*f)(Floats, Floats)>
void packets(void* dst, const void* a, const void* b, const void*, std::int64_t n) {
  float* d = static_cast<float*>(dst);
  const float* x = static_cast<const float*>(a);
  const float* y = static_cast<const float*>(b);
  if (n == 1) return store(d, f(all(*x), all(*y)));
  for (std::int64_t i = 0; i < n; i += kPacket)
    store(d + i, f(load_floats(x + i), load_floats(y + i)));
}

// Angles too large for the packets' reduction, infinities and NaN go to libm, these elements only.
template <Doubles (*f)(Doubles), float (*of_large)(float)>
void angles(void* dst, const void* a, const void*, const void*, std::int64_t n) {
  float* d = static_cast<float*>(dst);
  const float* x = static_cast<const float*>(a);
  for (std::int64_t i = 0; i < n; i += kPacket) {
    Floats v = n == 1 ? all(*x) : load_floats(x + i);
    float in[kPacket], out[kPacket];
    store(in, v);
    store(out, in_doubles(v, [](Doubles part) { return f(part); }));
    bool small = true;
    for (int l = 0; l < kPacket; ++l) small &= __builtin_fabsf(in[l]) <= kLargeAngle;
    if (!small)
      for (int l = 0; l < kPacket; ++l)
        if (!(__builtin_fabsf(in[l]) <= kLargeAngle)) out[l] = of_large(in[l]);
    __builtin_memcpy(d + i, out, sizeof out);
  }
}

template <class T>
void fill(LevelKernels& k, DType type) {
  auto set = [&](ScalarOp op, TileFunction f) { k.op[int(op)][int(type)] = f; };
#define TROUPE_SET(name) set(ScalarOp::name, unary<T, T, cpu::name>);
  TROUPE_SET(exp)
  TROUPE_SET(expm1)
  TROUPE_SET(log)
  TROUPE_SET(log1p)
  TROUPE_SET(sin)
  TROUPE_SET(cos)
  TROUPE_SET(tan)
  TROUPE_SET(asin)
  TROUPE_SET(acos)
  TROUPE_SET(atan)
  TROUPE_SET(sinh)
  TROUPE_SET(cosh)
  TROUPE_SET(tanh)
  TROUPE_SET(asinh)
  TROUPE_SET(acosh)
  TROUPE_SET(atanh)
  TROUPE_SET(erf)
  TROUPE_SET(erfc)
  TROUPE_SET(gelu)
  TROUPE_SET(gelu_slope)
  TROUPE_SET(sigmoid)
#undef TROUPE_SET
  set(ScalarOp::pow, binary<T, T, cpu::pow>);
  set(ScalarOp::atan2, binary<T, T, cpu::atan2>);
}

template <class T>
void fill_complex(LevelKernels& k, DType type) {
  using C = Complex<T>;
  auto set = [&](ScalarOp op, TileFunction f) { k.op[int(op)][int(type)] = f; };
#define TROUPE_SET(name) set(ScalarOp::name, unary<C, C, cpu::name>);
  TROUPE_SET(exp)
  TROUPE_SET(log)
  TROUPE_SET(sqrt)
  TROUPE_SET(sin)
  TROUPE_SET(cos)
  TROUPE_SET(tan)
  TROUPE_SET(asin)
  TROUPE_SET(acos)
  TROUPE_SET(atan)
  TROUPE_SET(sinh)
  TROUPE_SET(cosh)
  TROUPE_SET(tanh)
  TROUPE_SET(asinh)
  TROUPE_SET(acosh)
  TROUPE_SET(atanh)
#undef TROUPE_SET
  set(ScalarOp::rsqrt, unary<C, C, rsqrt_c<T>>);
  set(ScalarOp::expm1, unary<C, C, expm1_c<T>>);
  set(ScalarOp::log1p, unary<C, C, log1p_c<T>>);
  set(ScalarOp::sigmoid, unary<C, C, sigmoid_c<T>>);
  set(ScalarOp::pow, binary<C, C, pow_c<T>>);
}

}  // namespace

void TROUPE_FILL(functions)(LevelKernels& k) {
  fill<float>(k, DType::f32);
  fill<double>(k, DType::f64);
  fill_complex<float>(k, DType::c64);
  fill_complex<double>(k, DType::c128);
  auto set = [&](ScalarOp op, TileFunction f) { k.op[int(op)][int(DType::f32)] = f; };
  set(ScalarOp::exp, packets<cpu::exp, 4>);
  set(ScalarOp::expm1, packets<cpu::expm1, 4>);
  set(ScalarOp::log, packets<cpu::log, 4>);
  set(ScalarOp::log1p, packets<cpu::log1p>);
  set(ScalarOp::tanh, packets<cpu::tanh, 4>);
  set(ScalarOp::sigmoid, packets<cpu::sigmoid, 4>);
  set(ScalarOp::erf, packets<cpu::erf, 4>);
  set(ScalarOp::erfc, packets<cpu::erfc, 2>);
  set(ScalarOp::gelu, packets<cpu::gelu, 2>);
  set(ScalarOp::gelu_slope, packets<cpu::gelu_slope, 2>);
  set(ScalarOp::sin, angles<sine<0>, cpu::sin>);
  set(ScalarOp::cos, angles<sine<1>, cpu::cos>);
  set(ScalarOp::tan, angles<tangent, cpu::tan>);
  set(ScalarOp::atan, packets<cpu::atan>);
  set(ScalarOp::atan2, packets<cpu::atan2>);
}

}  // namespace troupe::cpu
