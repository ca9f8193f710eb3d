// Contiguous rows: sums, extrema and what softmax needs.
#include <troupe/devices/cpu/levels/lanes.hpp>

namespace troupe::cpu {
namespace {

// How far ahead a long row of f64 is fetched, bytes: the processor's own looking ahead ends with the page.
constexpr std::int64_t kAhead = 2048;

template <class T>
double sum_wide(const T* x, std::int64_t n) {
  Doubles acc[kAccumulators] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t at = 0; at < kLanes * sizeof(T); at += 64) __builtin_prefetch(reinterpret_cast<const char*>(x + i) + at + kAhead);
    for (int r = 0; r < kAccumulators; ++r) acc[r] += load_doubles(x + i + r * kWide);
  }
  double lane[kLanes];
  __builtin_memcpy(lane, acc, sizeof lane);
  for (int l = 0; i + l < n; ++l) lane[l] += double(x[i + l]);
  return fold(lane);
}

// The whole 32s of n elements; how many elements these are.
inline std::int64_t add_floats(Lanes& lanes, const float* x, std::int64_t n) {
  return add_groups<1>(n, [=](std::int64_t i, Floats* one) __attribute__((always_inline)) { *one = load_floats(x + i); }, &lanes);
}

double sum(const float* x, std::int64_t n) {
  if (n < kGrouped) return sum_wide(x, n);
  Lanes lanes;
  const std::int64_t i = add_floats(lanes, x, n);
  const double found = lanes.total(x + i, n - i);
  return __builtin_isfinite(found) ? found : sum_wide(x, n);
}

// The largest, of what is no number nothing said: whoever asks finds it out by the way.
float top(const float* x, std::int64_t n) {
  constexpr int kBest = 8;
  Floats best[kBest];
  for (Floats& b : best) b = all(-__builtin_inff());
  std::int64_t i = 0;
  for (; i + kBest * kPacket <= n; i += kBest * kPacket)
    for (int p = 0; p < kBest; ++p) best[p] = larger(load_floats(x + i + p * kPacket), best[p]);
  for (; i + kPacket <= n; i += kPacket) best[0] = larger(load_floats(x + i), best[0]);
  for (int p = 1; p < kBest; ++p) best[0] = larger(best[p], best[0]);
  float result = -__builtin_inff();
  for (; i < n; ++i) result = x[i] > result ? x[i] : result;
  for (int l = 0; l < kPacket; ++l) result = best[0][l] > result ? best[0][l] : result;
  return result;
}

template <class T>
void add_rows(double* acc, const T* x, std::int64_t rows, std::int64_t stride, std::int64_t n) {
  fold_rows(acc, x, rows, stride, n, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
}

double exp_sum(float* out, const float* x, float shift, std::int64_t n) {
  constexpr std::int64_t kPart = 512;  // stays in the first cache
  float part[kPart];
  Lanes lanes;
  for (;;) {
    const std::int64_t count = n < kPart ? n : kPart;
    float* e = out ? out : part;
    std::int64_t i = 0;
    for (; i + kPacket <= count; i += kPacket) store(e + i, exp_of_less(load_floats(x + i) - shift));
    if (i < count) {
      const auto bytes = static_cast<std::size_t>(count - i) * sizeof(float);
      Floats last = all(shift);  // filled up with what is fast: results next to 0 are not
      __builtin_memcpy(&last, x + i, bytes);
      last = exp_of_less(last - shift);
      __builtin_memcpy(e + i, &last, bytes);
    }
    i = add_floats(lanes, e, count);
    n -= count;
    if (n == 0) return lanes.total(e + i, count - i);
    x += count;
    if (out) out += count;
  }
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
  k.sum_f32 = cpu::sum;
  k.sum_f64 = sum_wide<double>;
  k.top_f32 = top;
  k.add_rows_f32 = add_rows<float>;
  k.add_rows_f64 = add_rows<double>;
  k.exp_sum_f32 = exp_sum;
  k.shift_scale_f32 = shift_scale;
  k.add_f32 = cpu::add;
  k.softmax_back_f32 = softmax_back;
}

}  // namespace troupe::cpu
