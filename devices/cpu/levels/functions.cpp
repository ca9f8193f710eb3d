// Transcendental functions.
#include <troupe/devices/cpu/levels/tile.hpp>

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
template <class T> T sigmoid(T x) { return T(1) / (T(1) + exp(-x)); }

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
  set(ScalarOp::sigmoid, unary<T, T, cpu::sigmoid<T>>);
#undef TROUPE_SET
  set(ScalarOp::pow, binary<T, T, cpu::pow>);
  set(ScalarOp::atan2, binary<T, T, cpu::atan2>);
}

}  // namespace

void TROUPE_FILL(functions)(LevelKernels& k) {
  fill<float>(k, DType::f32);
  fill<double>(k, DType::f64);
}

}  // namespace troupe::cpu
