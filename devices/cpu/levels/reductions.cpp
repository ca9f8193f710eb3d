// Reductions of integers and f64, products, extrema: along contiguous rows, and of rows side by
// side.
#include <troupe/devices/cpu/levels/lanes.hpp>

namespace troupe::cpu {
namespace {

constexpr int kChains = 8;  // registers that are accumulated in at once

template <class T>
constexpr bool is_float = __is_same(T, float) || __is_same(T, double);

/// Sign-extended; sums and products wrap.
template <class T>
std::uint64_t bits_in(T x) {
  return static_cast<std::uint64_t>(x);
}

template <class T>
std::uint64_t sum_of_integers(const void* from, std::int64_t n) {
  const T* x = static_cast<const T*>(from);
  std::uint64_t total = 0;
  for (std::int64_t i = 0; i < n; ++i) total += bits_in(x[i]);
  return total;
}

template <class T>
std::uint64_t product_of_integers(const void* from, std::int64_t n) {
  const T* x = static_cast<const T*>(from);
  std::uint64_t total = 1;
  for (std::int64_t i = 0; i < n; ++i) total *= bits_in(x[i]);
  return total;
}

template <class T>
void add_rows_of_integers(std::uint64_t* acc, const void* from, std::int64_t rows,
                          std::int64_t stride, std::int64_t n) {
  const T* x = static_cast<const T*>(from);
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4, x += 4 * stride) {
    const T *a = x, *b = a + stride, *c = b + stride, *d = c + stride;
#pragma GCC ivdep
    for (std::int64_t j = 0; j < n; ++j)
      acc[j] += (bits_in(a[j]) + bits_in(b[j])) + (bits_in(c[j]) + bits_in(d[j]));
  }
  for (; r < rows; ++r, x += stride) {
#pragma GCC ivdep
    for (std::int64_t j = 0; j < n; ++j) acc[j] += bits_in(x[j]);
  }
}

template <class T>
double product(const T* x, std::int64_t n) {
  Doubles acc[kAccumulators];
  for (Doubles& a : acc) a = Doubles{} + 1.0;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int r = 0; r < kAccumulators; ++r) acc[r] *= load_doubles(x + i + r * kWide);
  double lane[kLanes];
  __builtin_memcpy(lane, acc, sizeof lane);
  for (int l = 0; i + l < n; ++l) lane[l] *= double(x[i + l]);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lane[l] *= lane[l + half];
  return lane[0];
}

template <class T>
void multiply_rows(double* acc, const T* x, std::int64_t rows, std::int64_t stride,
                   std::int64_t n) {
  fold_rows(
      acc, x, rows, stride, n, [](auto a, auto b) __attribute__((always_inline)) { return a * b; });
}

template <bool largest, class T>
bool is_better(T x, T best) {
  return largest ? x > best : x < best;
}

/// The larger or smaller of each; `best` where v is NaN.
template <bool largest, class Packet>
inline Packet better_of(Packet v, Packet best) {
  return (largest ? v > best : v < best) ? v : best;
}
template <bool largest>
inline Floats better_of(Floats v, Floats best) {
  return largest ? larger(v, best) : smaller(v, best);
}

/// Was there a NaN?
struct NaNs {
#if defined(__AVX512F__)
  unsigned seen = 0;  // two packets a comparison, of which GCC 12 makes two and selects
  void look(Floats x, Floats y) { seen |= _mm512_cmp_ps_mask(x, y, _CMP_UNORD_Q); }
  void look(Doubles x, Doubles y) { seen |= _mm512_cmp_pd_mask(x, y, _CMP_UNORD_Q); }
  bool any() const { return seen != 0; }
#else
  Ints seen = {};
  void look(Floats x, Floats y) { seen |= (x != x) | (y != y); }
  void look(Doubles x, Doubles y) { seen |= reinterpret_cast<Ints>((x != x) | (y != y)); }
  bool any() const {
    std::int32_t all = 0;
    for (int l = 0; l < kPacket; ++l) all |= seen[l];
    return all != 0;
  }
#endif
};

/// The extremum of n > 0 elements; NaN if one is.
template <class T, bool largest>
void extremum(const void* from, std::int64_t n, void* to) {
  typedef T Packet __attribute__((vector_size(kPacketBytes)));
  constexpr std::int64_t width = kPacketBytes / static_cast<std::int64_t>(sizeof(T));
  const T* x = static_cast<const T*>(from);
  T result = x[0];
  bool is_bad = false;
  if (n >= width) {
    Packet best[kChains], v, w;
    NaNs nans;
    __builtin_memcpy(&v, x, sizeof v);
    for (Packet& b : best) b = v;
    std::int64_t i = 0;
    for (; i + kChains * width <= n; i += kChains * width)
#pragma GCC unroll 4
      for (int pair = 0; pair < kChains / 2; ++pair) {
        __builtin_memcpy(&v, x + i + 2 * pair * width, sizeof v);
        __builtin_memcpy(&w, x + i + (2 * pair + 1) * width, sizeof w);
        if constexpr (is_float<T>) nans.look(v, w);
        best[2 * pair] = better_of<largest>(v, best[2 * pair]);
        best[2 * pair + 1] = better_of<largest>(w, best[2 * pair + 1]);
      }
    for (; i < n; i += width) {  // the last of them overlaps: an element may be looked at twice
      __builtin_memcpy(&v, x + (i + width <= n ? i : n - width), sizeof v);
      if constexpr (is_float<T>) nans.look(v, v);
      best[0] = better_of<largest>(v, best[0]);
    }
    for (const Packet& b : best)
      for (int l = 0; l < width; ++l) result = is_better<largest>(b[l], result) ? b[l] : result;
    is_bad = nans.any();
  } else {
    for (std::int64_t i = 0; i < n; ++i) {
      result = is_better<largest>(x[i], result) ? x[i] : result;
      if constexpr (is_float<T>) is_bad |= x[i] != x[i];
    }
  }
  if constexpr (is_float<T>)
    if (is_bad) result = static_cast<T>(__builtin_nan(""));
  *static_cast<T*>(to) = result;
}

template <class T, bool largest>
void extremum_rows(void* to, const void* from, std::int64_t rows, std::int64_t stride,
                   std::int64_t n) {
  T* best = static_cast<T*>(to);
  const T* x = static_cast<const T*>(from);
  auto better = [](T v, T b) __attribute__((always_inline)) {
    if constexpr (is_float<T>) return (largest ? v > b : v < b) | (v != v) ? v : b;
    else return (largest ? v > b : v < b) ? v : b;
  };
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4, x += 4 * stride) {
    const T *a = x, *b = a + stride, *c = b + stride, *d = c + stride;
#pragma GCC ivdep
    for (std::int64_t j = 0; j < n; ++j)
      best[j] = better(d[j], better(c[j], better(b[j], better(a[j], best[j]))));
  }
  for (; r < rows; ++r, x += stride) {
#pragma GCC ivdep
    for (std::int64_t j = 0; j < n; ++j) best[j] = better(x[j], best[j]);
  }
}

template <class T>
void fill_extrema(LevelKernels& k) {
  const int type = int(dtype_at<T>());
  k.extremum[0][type] = extremum<T, false>;
  k.extremum[1][type] = extremum<T, true>;
  k.extremum_rows[0][type] = extremum_rows<T, false>;
  k.extremum_rows[1][type] = extremum_rows<T, true>;
}
template <class T>
void fill_integers(LevelKernels& k) {
  const int type = int(dtype_at<T>());
  k.sum_int[type] = sum_of_integers<T>;
  k.product_int[type] = product_of_integers<T>;
  k.add_rows_int[type] = add_rows_of_integers<T>;
  fill_extrema<T>(k);
}

}  // namespace

void TROUPE_FILL(reductions)(LevelKernels& k) {
  k.product_f32 = product<float>;
  k.product_f64 = product<double>;
  k.multiply_rows_f32 = multiply_rows<float>;
  k.multiply_rows_f64 = multiply_rows<double>;
  fill_extrema<float>(k);
  fill_extrema<double>(k);
  fill_integers<std::int8_t>(k);
  fill_integers<std::int16_t>(k);
  fill_integers<std::int32_t>(k);
  fill_integers<std::int64_t>(k);
  fill_integers<std::uint8_t>(k);
  fill_integers<std::uint16_t>(k);
  fill_integers<std::uint32_t>(k);
  fill_integers<std::uint64_t>(k);
}

}  // namespace troupe::cpu
