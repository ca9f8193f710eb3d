// Rows folded into one, and sums of rows: a row is folded into 32 lanes, lane l taking elements l, l + 32, …; the lanes are then added pairwise. The order
// depends on the row's length alone, so every level gives the same sums.
#pragma once

#include <troupe/devices/cpu/levels/packet.hpp>

namespace troupe::cpu {
namespace {

constexpr int kLanes = 32;
constexpr int kWide = kPacketBytes / 8;     // doubles a register
constexpr int kRegisters = kLanes / kWide;  // accumulators

inline double fold(double* lane) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
  return lane[0];
}

/// acc[j] = f(acc[j], x[r * stride + j]) over the rows in order.
template <class T, class F>
inline void fold_rows(double* acc, const T* x, std::int64_t rows, std::int64_t stride, std::int64_t n, F f) {
  constexpr int kTogether = 8;  // rows for which what is accumulated is loaded and stored once
  for (; rows >= kTogether; rows -= kTogether, x += kTogether * stride) {
    std::int64_t j = 0;
    for (; j + kWide <= n; j += kWide) {
      Doubles folded = load_doubles(acc + j);
      for (int r = 0; r < kTogether; ++r) folded = f(folded, load_doubles(x + r * stride + j));
      __builtin_memcpy(acc + j, &folded, sizeof folded);
    }
    for (; j < n; ++j)
      for (int r = 0; r < kTogether; ++r) acc[j] = f(acc[j], double(x[r * stride + j]));
  }
  for (; rows > 0; --rows, x += stride) {
#pragma GCC ivdep
    for (std::int64_t j = 0; j < n; ++j) acc[j] = f(acc[j], double(x[j]));
  }
}

/// How many packets that go to one lane are added in float, pairwise, before they are widened: widening costs as much as adding.
constexpr int kPaired = 4;
inline Floats paired(const Floats* x) { return (x[0] + x[1]) + (x[2] + x[3]); }

/// The lanes, in registers.
struct Lanes {
  Doubles acc[kRegisters] = {};

  /// Packet p of the 32.
  void add(int p, Floats x) {
    HalfFloats half[2];
    __builtin_memcpy(half, &x, sizeof x);
    acc[2 * p] += widened(half[0]);
    acc[2 * p + 1] += widened(half[1]);
  }
  /// The sum of all, and of `count` < 32 more, one to each lane.
  double total(const float* more = nullptr, std::int64_t count = 0) {
    double lane[kLanes];
    __builtin_memcpy(lane, acc, sizeof lane);
    for (int l = 0; l < count; ++l) lane[l] += double(more[l]);
    return fold(lane);
  }
};

}  // namespace
}  // namespace troupe::cpu
