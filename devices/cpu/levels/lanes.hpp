// Rows folded into one, and sums of rows: a row is folded into 32 lanes, lane l taking elements l,
// l + 32, … or, of floats, what add_groups says; the lanes are then added pairwise. The order
// depends on the row's length alone, so every level gives the same sums.
#pragma once

#include <troupe/devices/cpu/levels/packet.hpp>

namespace troupe::cpu {
namespace {

constexpr int kLanes = 32;
constexpr int kWide = kPacketBytes / 8;  // doubles a register
constexpr int kAccumulators = kLanes / kWide;

inline double fold(Doubles* lanes) {
  for (int half = kAccumulators / 2; half > 0; half /= 2)
    for (int r = 0; r < half; ++r) lanes[r] += lanes[r + half];
  double lane[kWide];
  __builtin_memcpy(lane, lanes, sizeof lane);
  for (int half = kWide / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
  return lane[0];
}

// One element, or the packet from there on.
inline void load(float& to, const float* x) { to = *x; }
inline void load(double& to, const float* x) { to = double(*x); }
inline void load(Floats& to, const float* x) { to = load_floats(x); }

inline void add_wide(double* to, Floats x) {
  HalfFloats half[2];
  __builtin_memcpy(half, &x, sizeof x);
  for (int k = 0; k < 2; ++k) {
    const Doubles sum = load_doubles(to + k * kWide) + widened(half[k]);
    __builtin_memcpy(to + k * kWide, &sum, sizeof sum);
  }
}

/// acc[j] = f(acc[j], x[r * stride + j]) over the rows in order.
template <class T, class F>
inline void fold_rows(double* acc, const T* x, std::int64_t rows, std::int64_t stride,
                      std::int64_t n, F f) {
  constexpr int kTogether = 8;  // rows whose accumulator is loaded and stored once
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
  Doubles acc[kAccumulators];

  // One by one: of several at once GCC 12 makes `rep stos`, which takes as long as 200 elements.
  __attribute__((always_inline)) Lanes() {
    for (Doubles& a : acc) a = Doubles{};
  }

  /// Packet p of the 32.
  void add(int p, Floats x) {
    HalfFloats half[2];
    __builtin_memcpy(half, &x, sizeof x);
    acc[2 * p] += widened(half[0]);
    acc[2 * p + 1] += widened(half[1]);
  }
  /// The sum of all, and of `count` < 32 more, one to each lane.
  double total(const float* more, std::int64_t count) {
    if (count > 0) {
      double lane[kLanes];
      __builtin_memcpy(lane, acc, sizeof lane);
      for (int l = 0; l < count; ++l) lane[l] += double(more[l]);
      __builtin_memcpy(acc, lane, sizeof lane);
    }
    return fold(acc);
  }
};

// Floats are added in groups before they are widened, which costs as much as adding: of 8 times 16
// elements, then of 4 times 16, pairwise; each second group goes to the other half of the lanes. So
// memory is read in its order: what is read to and fro is fetched later. An element is rounded
// three times more.
constexpr int kQuarter = 16, kHalves = kLanes / kQuarter, kQuarterPackets = kQuarter / kPacket;
// shorter rows have no groups: each of their elements is widened
constexpr int kGrouped = kHalves * 4 * kQuarter;

/// The packets that at() makes of `count` quarters, added pairwise; depth first, so few are kept at
/// a time.
template <int terms, int count, class F>
__attribute__((always_inline)) inline void add_pairwise(F at, std::int64_t i,
                                                        Floats (*to)[kQuarterPackets]) {
  if constexpr (count == 1) {
    Floats one[terms];
    for (int p = 0; p < kQuarterPackets; ++p) {
      at(i + p * kPacket, one);
      for (int t = 0; t < terms; ++t) to[t][p] = one[t];
    }
    asm volatile("" ::: "memory");  // the compiler would read the last first
  } else {
    Floats more[terms][kQuarterPackets];
    add_pairwise<terms, count / 2>(at, i, to);
    add_pairwise<terms, count / 2>(at, i + count / 2 * kQuarter, more);
    for (int t = 0; t < terms; ++t)
      for (int p = 0; p < kQuarterPackets; ++p) to[t][p] += more[t][p];
  }
}

/// The group from i on, to half h of the lanes.
template <int terms, int quarters, class F>
__attribute__((always_inline)) inline void add_group(std::int64_t i, int h, F at, Lanes* sum) {
  Floats group[terms][kQuarterPackets];
  add_pairwise<terms, quarters>(at, i, group);
  for (int t = 0; t < terms; ++t)
    for (int p = 0; p < kQuarterPackets; ++p) sum[t].add(h * kQuarterPackets + p, group[t][p]);
}

template <int terms, int quarters, class F>
__attribute__((always_inline)) inline std::int64_t add_groups_of(std::int64_t i, std::int64_t n,
                                                                 F at, Lanes* sum) {
  for (; i + kHalves * quarters * kQuarter <= n; i += kHalves * quarters * kQuarter)
    for (int h = 0; h < kHalves; ++h)
      add_group<terms, quarters>(i + h * quarters * kQuarter, h, at, sum);
  return i;
}

constexpr int kStep = kHalves * 8 * kQuarter;

/// Adds up `terms` sums over the whole 32s of n elements and returns how many elements these are.
/// at(i, one) makes one[terms] of the packet of elements from i on. A group that overflows makes a
/// sum infinite or NaN: it is then to be taken again in double. `i`: the kStep elements before it,
/// several times, are there.
template <int terms, class F>
inline std::int64_t add_groups(std::int64_t n, F at, Lanes* sum, std::int64_t i = 0) {
  i = add_groups_of<terms, 8>(i, n, at, sum);
  i = add_groups_of<terms, 4>(i, n, at, sum);
  Floats one[terms];
  for (; i + kLanes <= n; i += kLanes)
    for (int p = 0; p < kLanes / kPacket; ++p) {
      at(i + p * kPacket, one);
      for (int t = 0; t < terms; ++t) sum[t].add(p, one[t]);
    }
  return i;
}

}  // namespace
}  // namespace troupe::cpu
