// Rows folded into one, and sums of rows: a row is folded into 32 lanes, lane l taking elements l, l + 32, … or, of floats, what add_groups says; the lanes
// are then added pairwise. The order depends on the row's length alone, so every level gives the same sums.
#pragma once

#include <troupe/devices/cpu/levels/packet.hpp>

namespace troupe::cpu {
namespace {

constexpr int kLanes = 32;
constexpr int kWide = kPacketBytes / 8;     // doubles a register
constexpr int kAccumulators = kLanes / kWide;

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

/// The lanes, in registers.
struct Lanes {
  Doubles acc[kAccumulators] = {};

  /// Packet p of the 32.
  void add(int p, Floats x) {
    HalfFloats half[2];
    __builtin_memcpy(half, &x, sizeof x);
    acc[2 * p] += widened(half[0]);
    acc[2 * p + 1] += widened(half[1]);
  }
  /// The sum of all, and of `count` < 32 more, one to each lane.
  double total(const float* more, std::int64_t count) {
    double lane[kLanes];
    __builtin_memcpy(lane, acc, sizeof lane);
    for (int l = 0; l < count; ++l) lane[l] += double(more[l]);
    return fold(lane);
  }
};

// Floats are added in groups of four times 16 elements, pairwise, before they are widened, which costs as much as adding; each second group goes to the other
// half of the lanes. So memory is read in its order: what is read to and fro is fetched later.
constexpr int kQuarter = 16, kGroup = 4 * kQuarter, kHalves = kLanes / kQuarter;
constexpr int kGrouped = kHalves * kGroup;  // shorter rows have no groups: each of their elements is widened

/// Adds up `terms` sums over the whole 32s of n elements and returns how many elements these are. at(i, one) makes one[terms] of the packet of elements from i
/// on. Four that overflow make a sum infinite or NaN: it is then to be taken again in double.
template <int terms, class F>
inline std::int64_t add_groups(std::int64_t n, F at, Lanes* sum) {
  constexpr int packets = kQuarter / kPacket;
  Floats one[terms];
  std::int64_t i = 0;
  for (; i + kGrouped <= n; i += kGrouped)
    for (int h = 0; h < kHalves; ++h) {
      Floats of[terms][packets][4];
      for (int k = 0; k < 4; ++k)
        for (int p = 0; p < packets; ++p) {
          at(i + h * kGroup + k * kQuarter + p * kPacket, one);
          for (int t = 0; t < terms; ++t) of[t][p][k] = one[t];
        }
      for (int t = 0; t < terms; ++t)
        for (int p = 0; p < packets; ++p) sum[t].add(h * packets + p, (of[t][p][0] + of[t][p][1]) + (of[t][p][2] + of[t][p][3]));
    }
  for (; i + kLanes <= n; i += kLanes)
    for (int p = 0; p < kLanes / kPacket; ++p) {
      at(i + p * kPacket, one);
      for (int t = 0; t < terms; ++t) sum[t].add(p, one[t]);
    }
  return i;
}

}  // namespace
}  // namespace troupe::cpu
