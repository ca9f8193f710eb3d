// Contiguous rows: sums, extrema and what softmax needs.
//
// A row is folded into 32 lanes, lane l taking elements l, l + 32, …; the lanes are then added
// pairwise. The order depends on the row's length alone, so every level gives the same sums.
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

template <class T>
double sum(const T* x, std::int64_t n) {
  Doubles acc[kRegisters] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int r = 0; r < kRegisters; ++r) acc[r] += load_doubles(x + i + r * kWide);
  double lane[kLanes];
  __builtin_memcpy(lane, acc, sizeof lane);
  for (int l = 0; i + l < n; ++l) lane[l] += double(x[i + l]);
  return fold(lane);
}

template <bool largest>
float extremum(const float* x, std::int64_t n) {
  constexpr int kPackets = kLanes / kPacket;
  float start = largest ? -__builtin_inff() : __builtin_inff();
  Floats best[kPackets];
  Ints bad = {};
  for (Floats& b : best) b = all(start);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    float padded[kLanes];
    const float* from = x + i;
    if (n - i < kLanes) {
      for (int l = 0; l < kLanes; ++l) padded[l] = l < n - i ? from[l] : start;
      from = padded;
    }
    for (int p = 0; p < kPackets; ++p) {
      Floats v = load_floats(from + p * kPacket);
      best[p] = (largest ? v > best[p] : v < best[p]) ? v : best[p];
      bad |= v != v;
    }
  }
  float result = start;
  std::int32_t any = 0;
  for (int l = 0; l < kLanes; ++l) {
    float v = best[l / kPacket][l % kPacket];
    result = (largest ? v > result : v < result) ? v : result;
    any |= bad[l % kPacket];
  }
  return any ? __builtin_nanf("") : result;
}

template <class T>
void add_rows(double* acc, const T* x, std::int64_t rows, std::int64_t stride, std::int64_t n) {
  for (std::int64_t r = 0; r < rows; ++r, x += stride) {
#pragma GCC ivdep
    for (std::int64_t j = 0; j < n; ++j) acc[j] += double(x[j]);
  }
}

double exp_sum(float* out, const float* x, float shift, std::int64_t n) {
  Doubles acc[kRegisters] = {};
  for (std::int64_t i = 0; i < n; i += kLanes) {
    std::int64_t count = n - i;
    float e[kLanes];
    const float* from = x + i;
    if (count < kLanes) {  // the last packets are filled up with what adds nothing
      for (int l = 0; l < kLanes; ++l) e[l] = l < count ? from[l] : -__builtin_inff();
      from = e;
    }
    float* to = out && count >= kLanes ? out + i : e;
    for (int p = 0; p < kLanes / kPacket; ++p) {
      Floats y = exp(load_floats(from + p * kPacket) - shift);
      store(to + p * kPacket, y);
      HalfFloats half[2];
      __builtin_memcpy(half, &y, sizeof y);
      acc[2 * p] += widened(half[0]);
      acc[2 * p + 1] += widened(half[1]);
    }
    if (out && to == e) __builtin_memcpy(out + i, e, static_cast<std::size_t>(count) * sizeof(float));
  }
  double lane[kLanes];
  __builtin_memcpy(lane, acc, sizeof lane);
  return fold(lane);
}

void shift_scale(float* out, const float* x, float shift, float scale, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = (x[i] - shift) * scale;
}

void add(float* to, const float* from, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) to[i] += from[i];
}

void softmax_back(float* dp, const float* p, float mean, float scale, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) dp[i] = p[i] * ((dp[i] - mean) * scale);
}

}  // namespace

void TROUPE_FILL(rows)(LevelKernels& k) {
  k.sum_f32 = sum<float>;
  k.sum_f64 = sum<double>;
  k.max_f32 = extremum<true>;
  k.min_f32 = extremum<false>;
  k.add_rows_f32 = add_rows<float>;
  k.add_rows_f64 = add_rows<double>;
  k.exp_sum_f32 = exp_sum;
  k.shift_scale_f32 = shift_scale;
  k.add_f32 = cpu::add;
  k.softmax_back_f32 = softmax_back;
}

}  // namespace troupe::cpu
