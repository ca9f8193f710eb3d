// Transcendental functions: packets where packet.hpp has them for f32, else libm's, an element at a
// time. Either way an element's result does not depend on where it stands.
#include <troupe/devices/cpu/levels/packet.hpp>

namespace troupe::cpu {
namespace {

#define TROUPE_BOTH(name)                                          \
  inline float name(float x) { return __builtin_##name##f(x); }    \
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
#undef TROUPE_BOTH
inline float pow(float x, float y) { return __builtin_powf(x, y); }
inline double pow(double x, double y) { return __builtin_pow(x, y); }
inline float atan2(float x, float y) { return __builtin_atan2f(x, y); }
inline double atan2(double x, double y) { return __builtin_atan2(x, y); }
inline double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
inline float sigmoid(float x) { return float(sigmoid(double(x))); }

/// Packets from 0 to n, the last one whole: buffers are padded. A lone scalar is spread here, since a
/// packet loaded right behind narrower stores would wait for them.
template <Floats (*f)(Floats)>
void packets(void* dst, const void* a, const void*, const void*, std::int64_t n) {
  float* d = static_cast<float*>(dst);
  const float* x = static_cast<const float*>(a);
  if (n == 1) return store(d, f(all(*x)));
  for (std::int64_t i = 0; i < n; i += kPacket) store(d + i, f(load_floats(x + i)));
}

// Angles too large for the packets' reduction, infinities and NaN: libm, for those elements only.
template <int quarter_turns>
void angles(void* dst, const void* a, const void*, const void*, std::int64_t n) {
  float* d = static_cast<float*>(dst);
  const float* x = static_cast<const float*>(a);
  for (std::int64_t i = 0; i < n; i += kPacket) {
    Floats v = n == 1 ? all(*x) : load_floats(x + i);
    float in[kPacket], out[kPacket];
    store(in, v);
    store(out, sine<quarter_turns>(v));
    bool small = true;
    for (int l = 0; l < kPacket; ++l) small &= __builtin_fabsf(in[l]) <= kLargeAngle;
    if (!small)
      for (int l = 0; l < kPacket; ++l)
        if (!(__builtin_fabsf(in[l]) <= kLargeAngle)) out[l] = quarter_turns ? __builtin_cosf(in[l]) : __builtin_sinf(in[l]);
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
  TROUPE_SET(sigmoid)
#undef TROUPE_SET
  set(ScalarOp::pow, binary<T, T, cpu::pow>);
  set(ScalarOp::atan2, binary<T, T, cpu::atan2>);
}

}  // namespace

void TROUPE_FILL(functions)(LevelKernels& k) {
  fill<float>(k, DType::f32);
  fill<double>(k, DType::f64);
  auto set = [&](ScalarOp op, TileFunction f) { k.op[int(op)][int(DType::f32)] = f; };
  set(ScalarOp::exp, packets<cpu::exp>);
  set(ScalarOp::expm1, packets<cpu::expm1>);
  set(ScalarOp::log, packets<cpu::log>);
  set(ScalarOp::log1p, packets<cpu::log1p>);
  set(ScalarOp::tanh, packets<cpu::tanh>);
  set(ScalarOp::sigmoid, packets<cpu::sigmoid>);
  set(ScalarOp::erf, packets<cpu::erf>);
  set(ScalarOp::sin, angles<0>);
  set(ScalarOp::cos, angles<1>);
}

}  // namespace troupe::cpu
