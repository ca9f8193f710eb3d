// Contiguous rows: sums, extrema and the steps of softmax.
#include <troupe/devices/cpu/levels/lanes.hpp>

namespace troupe::cpu {
namespace {

// How far ahead a long row of f64 is fetched, bytes: the processor's own looking ahead ends with
// the page.
constexpr std::int64_t kAhead = 2048;

// As sum_wide, whose other lanes are 0: rows of two or three took as long as rows of 32.
constexpr std::int64_t kFew = 8;
template <class T>
double sum_few(const T* x, std::int64_t n) {
  double lane[kFew] = {};
  for (std::int64_t l = 0; l < n; ++l) lane[l] += double(x[l]);
  for (std::int64_t half = kFew / 2; half > 0; half /= 2)
    for (std::int64_t l = 0; l < half; ++l) lane[l] += lane[l + half];
  return lane[0];
}

template <class T>
double sum_wide(const T* x, std::int64_t n) {
  if (n <= kFew) return sum_few(x, n);
  Doubles acc[kAccumulators] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t at = 0; at < kLanes * sizeof(T); at += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(x + i) + at + kAhead);
    for (int r = 0; r < kAccumulators; ++r) acc[r] += load_doubles(x + i + r * kWide);
  }
  if (i < n) {
    double lane[kLanes];
    __builtin_memcpy(lane, acc, sizeof lane);
    for (int l = 0; i + l < n; ++l) lane[l] += double(x[i + l]);
    __builtin_memcpy(acc, lane, sizeof lane);
  }
  return fold(acc);
}

// The whole 32s of n elements; how many elements these are.
inline std::int64_t add_floats(Lanes& lanes, const float* x, std::int64_t n) {
  return add_groups<1>(
      n,
      [=](std::int64_t i, Floats * one)
          __attribute__((always_inline)) { *one = load_floats(x + i); },
      &lanes);
}

double sum(const float* x, std::int64_t n) {
  if (n < kGrouped) return sum_wide(x, n);
  Lanes lanes;
  const std::int64_t i = add_floats(lanes, x, n);
  const double found = lanes.total(x + i, n - i);
  return __builtin_isfinite(found) ? found : sum_wide(x, n);
}

// Rows are read at four locations, a group of each in turn: the processor fetches ahead in each of
// the four, which halves the wait for memory (10^7 elements: 1.1 instead of 1.9 ms). Locations less
// than four pages apart gain nothing, so short rows are taken several to a location.
constexpr int kPlaces = 4;
constexpr std::int64_t kPlace = 4096;

void sums_of_four(double* sums, const float* x, std::int64_t apart, std::int64_t stride,
                  std::int64_t n) {
  Lanes lanes[kPlaces];
  std::int64_t i = 0;
  const auto row = [&](int p) {
    return [=](std::int64_t at, Floats * one) __attribute__((always_inline)) {
      *one = load_floats(x + p * apart * stride + at);
    };
  };
  for (; i + kStep <= n; i += kStep)
    for (int h = 0; h < kHalves; ++h)
      for (int p = 0; p < kPlaces; ++p) add_group<1, 8>(i + h * 8 * kQuarter, h, row(p), lanes + p);
  for (int p = 0; p < kPlaces; ++p) {
    const float* from = x + p * apart * stride;
    const std::int64_t done = add_groups<1>(n, row(p), lanes + p, i);
    const double found = lanes[p].total(from + done, n - done);
    sums[p * apart] = __builtin_isfinite(found) ? found : sum_wide(from, n);
  }
}

void sums(double* sums, const float* x, std::int64_t rows, std::int64_t stride, std::int64_t n) {
  if (n >= kStep)
    for (std::int64_t apart = (kPlace + stride - 1) / stride; apart > 0; apart /= 2)
      for (; rows >= kPlaces * apart;
           rows -= kPlaces * apart, x += kPlaces * apart * stride, sums += kPlaces * apart)
        for (std::int64_t r = 0; r < apart; ++r)
          sums_of_four(sums + r, x + r * stride, apart, stride, n);
  for (; rows > 0; --rows, x += stride) *sums++ = sum(x, n);
}

// Returns the largest number; NaN is ignored, because callers detect it elsewhere.
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
__attribute__((noinline)) void add_rows(double* acc, const T* x, std::int64_t rows,
                                        std::int64_t stride, std::int64_t n) {
  fold_rows(
      acc, x, rows, stride, n, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
}

inline bool are_finite(Floats x) {
  const Floats none = x - x;  // 0, or NaN
  const Longs bad = reinterpret_cast<Longs>(none != none);
  std::int64_t any = 0;
  for (int l = 0; l < kWide; ++l) any |= bad[l];
  return any == 0;
}

// Eight rows are added as floats, pairwise, before they are widened, which costs as much as adding;
// in double from the first on where that overflows.
constexpr int kEight = 8;

template <class V>
inline V sum_of_eight(const float* x, std::int64_t stride) {
  V r[kEight];
  for (int k = 0; k < kEight; ++k) load(r[k], x + k * stride);
  return ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
}

// Adds each column separately, so that a column's bits depend neither on another column nor on how
// many the level takes together.
__attribute__((noinline)) void add_eight_one_by_one(double* acc, const float* x,
                                                    std::int64_t stride, std::int64_t columns) {
  for (std::int64_t j = 0; j < columns; ++j) {
    const float sum = sum_of_eight<float>(x + j, stride);
    if (__builtin_isfinite(sum)) acc[j] += double(sum);
    else add_rows(acc + j, x + j, kEight, stride, 1);
  }
}

template <int packets>
inline void add_eight(double* acc, const float* x, std::int64_t stride) {
  Floats sums[packets], none = {};
  for (int p = 0; p < packets; ++p) {
    sums[p] = sum_of_eight<Floats>(x + p * kPacket, stride);
    none += sums[p] - sums[p];
  }
  if (!are_finite(none)) return add_eight_one_by_one(acc, x, stride, packets * kPacket);
  for (int p = 0; p < packets; ++p) add_wide(acc + p * kPacket, sums[p]);
}

void add_rows_of_floats(double* acc, const float* x, std::int64_t rows, std::int64_t stride,
                        std::int64_t n) {
  constexpr int kPackets = 4;
  for (; rows >= kEight; rows -= kEight, x += kEight * stride) {
    std::int64_t j = 0;
    for (; j + kPackets * kPacket <= n; j += kPackets * kPacket)
      add_eight<kPackets>(acc + j, x + j, stride);
    for (; j + kPacket <= n; j += kPacket) add_eight<1>(acc + j, x + j, stride);
    if (j < n) add_eight_one_by_one(acc + j, x + j, stride, n - j);
  }
  add_rows(acc, x, rows, stride, n);
}

double exp_sum(float* out, const float* x, float shift, std::int64_t n) {
  constexpr std::int64_t kPart = 512;  // stays in the first cache
  float part[kPart];
  Lanes lanes;
  for (;;) {
    const std::int64_t count = n < kPart ? n : kPart;
    float* e = out ? out : part;
    std::int64_t i = 0;
    for (; i + kPacket <= count; i += kPacket)
      store(e + i, exp_of_less(load_floats(x + i) - shift));
    if (i < count) {
      const auto bytes = static_cast<std::size_t>(count - i) * sizeof(float);
      Floats last = all(shift);  // padded with an operand that is fast: results next to 0 are not
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
  k.sums_f32 = sums;
  k.sum_f64 = sum_wide<double>;
  k.top_f32 = top;
  k.add_rows_f32 = add_rows_of_floats;
  k.add_rows_f64 = add_rows<double>;
  k.exp_sum_f32 = exp_sum;
  k.shift_scale_f32 = shift_scale;
  k.add_f32 = cpu::add;
  k.softmax_back_f32 = softmax_back;
}

}  // namespace troupe::cpu
