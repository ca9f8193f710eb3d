// Rows brought to mean 0 and variance 1, and back. f32 (and f16, bf16 by way of it) uses the
// level's row kernels; f64 plain loops.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <type_traits>

#include <fmt/format.h>

#include <troupe/devices/cpu/as_floats.hpp>
#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/cpu/element_types.hpp>
#include <troupe/devices/cpu/level.hpp>
#include <troupe/devices/device/row_norm.hpp>

namespace troupe::cpu {
namespace {

// The mean, or 0 if the row is not centered, and the mean square of the differences from it.
struct Moments {
  double mean, square;
};

Moments moments_of(const float* x, std::int64_t n, bool centered) {
  const double count = static_cast<double>(n);
  if (!centered) return {0, level_kernels().squares_f32(x, n) / count};
  double sum, squares;
  level_kernels().moments_f32(x, n, &sum, &squares);
  const double offset = sum / count, square = squares / count - offset * offset;
  // x[0] is so much an outlier that the squares, of floats, lose against each other
  constexpr double kFar = 16;
  if (offset * offset <= kFar * square) return {double(x[0]) + offset, square};
  sum = 0, squares = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += double(x[i]);
  const double mean = sum / count;
  for (std::int64_t i = 0; i < n; ++i) squares += (double(x[i]) - mean) * (double(x[i]) - mean);
  return {mean, squares / count};
}
Moments moments_of(const double* x, std::int64_t n, bool centered) {
  const double count = static_cast<double>(n);
  double sum = 0, squares = 0;
  for (std::int64_t i = 0; centered && i < n; ++i) sum += x[i];
  const double mean = sum / count;
  for (std::int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  return {mean, squares / count};
}

// Squares of floats or doubles below and above these limits may be lost, and the reciprocal root
// may not be a normal number.
template <class T>
constexpr double kSmallestSquare = std::is_same_v<T, float> ? 0x1p-80 : 0x1p-900;
template <class T>
constexpr double kLargestSquare = std::is_same_v<T, float> ? 0x1p200 : 0x1p900;

// Normalises a row for which T cannot hold the squares or the reciprocal of the deviation: computes
// in double, in units of a power of two near the row's largest number.
template <class T>
void normalize_extreme(T* y, const T* x, std::int64_t n, bool centered, double epsilon,
                       const T* scale, const T* bias, T* mean, T* rstd) {
  const double count = static_cast<double>(n);
  double largest = 0, sum = 0, squares = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(double(x[i])));
  // the smallest doubles have no reciprocal, hence the clamp
  const double unit =
      largest > 0 ? std::ldexp(1.0, std::clamp(-std::ilogb(largest), -1000, 1000)) : 1;
  for (std::int64_t i = 0; centered && i < n; ++i) sum += double(x[i]) * unit;
  const double center = sum / count;
  for (std::int64_t i = 0; i < n; ++i) {
    const double off = double(x[i]) * unit - center;
    squares += off * off;
  }
  const double spread = std::hypot(std::sqrt(squares / count) / unit, std::sqrt(epsilon)),
               factor = 1 / (spread * unit);
  for (std::int64_t i = 0; i < n; ++i)
    y[i] = static_cast<T>((double(x[i]) * unit - center) * factor * double(scale[i]) +
                          (bias ? double(bias[i]) : 0));
  if (mean) *mean = static_cast<T>(center / unit);
  *rstd = static_cast<T>(1 / spread);
}

void normalize(float* y, const float* x, float mean, float rstd, const float* scale,
               const float* bias, std::int64_t n) {
  level_kernels().normalize_f32(y, x, mean, rstd, scale, bias, n);
}
void normalize(double* y, const double* x, double mean, double rstd, const double* scale,
               const double* bias, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    y[i] = (x[i] - mean) * rstd * scale[i] + (bias ? bias[i] : 0);
}

// A parameter of each column: one element stands for all.
template <class T>
class Columns {
 public:
  Columns(const ConstView& v, std::int64_t n) : data_(static_cast<const T*>(v.data())) {
    if (v.elements() == n) return;
    repeated_.reset(new T[static_cast<std::size_t>(n)]);
    std::fill_n(repeated_.get(), n, *data_);
    data_ = repeated_.get();
  }
  const T* data() const { return data_; }

 private:
  std::unique_ptr<T[]> repeated_;
  const T* data_;
};

template <class T>
void forward(WorkerPool* pool, const RowNormArgs& a) {
  const auto* x = static_cast<const T*>(a.x.data());
  T *y = static_cast<T*>(a.y.data), *mean = a.centered ? static_cast<T*>(a.mean.data) : nullptr,
    *rstd = static_cast<T*>(a.rstd.data);
  if (a.n == 0) {
    constexpr T none = std::numeric_limits<T>::quiet_NaN();
    if (mean) std::fill_n(mean, a.rows, none);
    std::fill_n(rstd, a.rows, none);
    return;
  }
  const Columns<T> scale(a.scale, a.n);
  std::unique_ptr<Columns<T>> bias(a.centered ? new Columns<T>(a.bias, a.n) : nullptr);
  const std::int64_t group = std::max<std::int64_t>(1, kBlock / 4 / a.n);
  for_blocks(a.rows * a.n <= kSmallWork ? nullptr : pool, (a.rows + group - 1) / group, [&](int b) {
    for (std::int64_t r = b * group; r < std::min(a.rows, (b + 1) * group); ++r) {
      const Moments m = moments_of(x + r * a.n, a.n, a.centered);
      const double square = m.square + a.epsilon;
      if (!(square >= kSmallestSquare<T> && square <= kLargestSquare<T>)) {
        normalize_extreme(y + r * a.n, x + r * a.n, a.n, a.centered, a.epsilon, scale.data(),
                          bias ? bias->data() : nullptr, mean ? mean + r : nullptr, rstd + r);
        continue;
      }
      const T center = static_cast<T>(m.mean), factor = static_cast<T>(1 / std::sqrt(square));
      normalize(y + r * a.n, x + r * a.n, center, factor, scale.data(),
                bias ? bias->data() : nullptr, a.n);
      if (mean) mean[r] = center;
      rstd[r] = factor;
    }
  });
}

void back(const RowNormBack& c) { level_kernels().norm_back_f32(c); }

// As above in f64, in plain loops.
struct WideRowNormBack {
  std::int64_t rows, n;
  const double *x, *dy;
  double* dx;
  const double *mean, *rstd, *scale;
  double *dscale, *dbias;
};
void back(const WideRowNormBack& c) {
  for (std::int64_t r = 0; r < c.rows; ++r) {
    const double *x = c.x + r * c.n, *dy = c.dy + r * c.n, mean = c.mean ? c.mean[r] : 0,
                 rstd = c.rstd[r];
    double of_g = 0, of_gh = 0;
    for (std::int64_t i = 0; i < c.n; ++i) {
      const double g = dy[i] * c.scale[i];
      if (c.mean) of_g += g;
      of_gh += g * (x[i] - mean) * rstd;
    }
    of_g /= static_cast<double>(c.n);
    of_gh /= static_cast<double>(c.n);
    for (std::int64_t i = 0; i < c.n; ++i) {
      const double g = dy[i], h = (x[i] - mean) * rstd;
      c.dx[r * c.n + i] = (g * c.scale[i] - of_g - h * of_gh) * rstd;
      c.dscale[i] += g * h;
      if (c.dbias) c.dbias[i] += g;
    }
  }
}

// Each block of rows adds up its terms of dscale and dbias; the blocks' sums are then added in
// order.
template <class T>
void backward(WorkerPool* pool, const RowNormGradientArgs& a) {
  if (a.n == 0) return;
  using Call = std::conditional_t<std::is_same_v<T, float>, RowNormBack, WideRowNormBack>;
  constexpr std::int64_t kAtOnce = 4, kMostBlocks = 32;
  // Their sums, in double, take a quarter of x at most.
  const std::int64_t least = std::max({kMostBlocks, (kBlock + a.n - 1) / a.n,
                                       (a.rows + kMostBlocks - 1) / kMostBlocks}),
                     each = (least + kAtOnce - 1) / kAtOnce * kAtOnce;
  const std::int64_t blocks = (a.rows + each - 1) / each, width = a.centered ? 2 * a.n : a.n;
  const Columns<T> scale(a.scale, a.n);
  const auto *x = static_cast<const T*>(a.x.data()), *dy = static_cast<const T*>(a.dy.data());
  const auto *mean = a.centered ? static_cast<const T*>(a.mean.data()) : nullptr,
             *rstd = static_cast<const T*>(a.rstd.data());
  auto* dx = static_cast<T*>(a.dx.data);
  Ref<Buffer> memory = Buffer::allocate(
      host_allocator(),
      static_cast<std::size_t>(std::max<std::int64_t>(1, blocks) * width) * sizeof(double));
  auto* sums = static_cast<double*>(memory->data());
  std::fill_n(sums, width, 0.0);
  for_blocks(a.rows * a.n <= kSmallWork ? nullptr : pool, blocks, [&](int b) {
    const std::int64_t first = b * each, rows = std::min(each, a.rows - first), at = first * a.n;
    double* mine = sums + b * width;
    std::fill_n(mine, width, 0.0);
    back(Call{rows, a.n, x + at, dy + at, dx + at, mean ? mean + first : nullptr, rstd + first,
              scale.data(), mine, a.centered ? mine + a.n : nullptr});
  });
  for (std::int64_t b = 1; b < blocks; ++b)
    for (std::int64_t i = 0; i < width; ++i) sums[i] += sums[b * width + i];
  for (std::int64_t i = 0; i < a.n; ++i)
    static_cast<T*>(a.dscale.data)[i] = static_cast<T>(sums[i]);
  for (std::int64_t i = 0; a.centered && i < a.n; ++i)
    static_cast<T*>(a.dbias.data)[i] = static_cast<T>(sums[a.n + i]);
}

}  // namespace

void CpuPrimitives::row_norm(Stream& stream, const RowNormArgs& a) const {
  if (is_stored_only(a.x.dtype)) {
    // not looked at, if not centered
    const Widened x(a.x), scale(a.scale), bias(a.centered ? a.bias : a.scale);
    const Narrowed y(a.y);
    RowNormArgs wide = a;
    wide.x = x.view, wide.scale = scale.view, wide.bias = bias.view, wide.y = y.view;
    row_norm(stream, wide);
    return y.store();
  }
  visit_wide_float("normalisation", a.x.dtype, [&]<class T>(type_tag<T>) { forward<T>(pool_, a); });
}

void CpuPrimitives::row_norm_gradient(Stream& stream, const RowNormGradientArgs& a) const {
  if (is_stored_only(a.x.dtype)) {
    const Widened x(a.x), scale(a.scale), dy(a.dy);
    const Narrowed dx(a.dx), dscale(a.dscale), dbias(a.dbias);
    RowNormGradientArgs wide = a;
    wide.x = x.view, wide.scale = scale.view, wide.dy = dy.view, wide.dx = dx.view,
    wide.dscale = dscale.view, wide.dbias = dbias.view;
    row_norm_gradient(stream, wide);
    dx.store(), dscale.store();
    if (a.centered) dbias.store();
    return;
  }
  visit_wide_float("normalisation", a.x.dtype,
                   [&]<class T>(type_tag<T>) { backward<T>(pool_, a); });
}

}  // namespace troupe::cpu
