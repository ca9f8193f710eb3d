// The arithmetic peak of a core, measured: independent chains of f32 multiply-adds in registers, as
// wide as it has them. No product does more.
//
//   double t = time_of([] { sink = multiply_adds(4000); });   // ns
//   double gflops = multiply_add_flops(4000) / t;
#pragma once

#include <algorithm>

#include <troupe/test/bench/training.hpp>

namespace troupe::bench {

namespace detail {
// two units, four cycles each, want eight; with two operands there are registers for fourteen
constexpr int kChains = 12;

typedef float V128 __attribute__((vector_size(16)));
typedef float V256 __attribute__((vector_size(32)));
typedef float V512 __attribute__((vector_size(64)));

template <class V>
[[gnu::always_inline]] inline float chains(int rounds) {
  const V b = V{} + 0.999f, c = V{} + 0.001f;
  V a[kChains];
#pragma GCC unroll 12
  // 1 would stay 1
  for (int k = 0; k < kChains; ++k) a[k] = V{} + (1.1f + 0.1f * static_cast<float>(k));
  for (int i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int k = 0; k < kChains; ++k) a[k] = a[k] * b + c;
    asm volatile("" : : "r"(i));
  }
  V all{};
#pragma GCC unroll 12
  for (int k = 0; k < kChains; ++k) all += a[k];
  return all[0];
}

#if defined(__x86_64__)
__attribute__((target("arch=x86-64-v4,prefer-vector-width=512"), noinline)) inline float chains_v4(
    int rounds) {
  return chains<V512>(rounds);
}
__attribute__((target("arch=x86-64-v3"), noinline)) inline float chains_v3(int rounds) {
  return chains<V256>(rounds);
}
inline int width() {
  return __builtin_cpu_supports("x86-64-v4") ? 64 : __builtin_cpu_supports("x86-64-v3") ? 32 : 16;
}
#else
inline int width() { return 16; }
#endif
}  // namespace detail

inline float multiply_adds(int rounds) {
#if defined(__x86_64__)
  if (detail::width() == 64) return detail::chains_v4(rounds);
  if (detail::width() == 32) return detail::chains_v3(rounds);
#endif
  return detail::chains<detail::V128>(rounds);
}
/// Floating-point operations of `multiply_adds`: a multiply-add counts as two.
inline double multiply_add_flops(int rounds) {
  return 2.0 * detail::kChains * (detail::width() / 4) * rounds;
}

/// The most GFLOP/s of processor time that any of some tries, of a few milliseconds each, has
/// reached so far.
inline double peak_gflops() {
  constexpr int kTries = 15, kRounds = 4'000'000;
  static volatile float sink;
  static double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const double before = processor_ns();
    sink = sink + multiply_adds(kRounds);
    best = std::max(best, multiply_add_flops(kRounds) / (processor_ns() - before));
  }
  return best;
}

}  // namespace troupe::bench
