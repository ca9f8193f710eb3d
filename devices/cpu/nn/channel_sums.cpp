// Two sums for each channel in one read: moments of x about a point near its mean, or the sums of a
// normalisation's gradient (channel_sums.hpp).
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/cpu/element_types.hpp>
#include <troupe/devices/cpu/level.hpp>
#include <troupe/devices/device/channel_sums.hpp>

namespace troupe::cpu {
namespace {

template <class T>
void add_in_double(const T* x, const T* dy, const T* center, std::int64_t rows, std::int64_t n,
                   double* sums) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t j = 0, at = r * n; j < n; ++j, ++at) {
      const double off = double(x[at]) - double(center[j]), weight = dy ? double(dy[at]) : off;
      sums[j] += weight;
      sums[n + j] += weight * off;
    }
}

void add_columns(const float* x, const float* dy, const float* center, std::int64_t rows,
                 std::int64_t n, double* sums) {
  level_kernels().column_sums_f32(x, dy, center, rows, n, sums, sums + n);
}
void add_columns(const double* x, const double* dy, const double* center, std::int64_t rows,
                 std::int64_t n, double* sums) {
  add_in_double(x, dy, center, rows, n, sums);
}

// As add_columns for rows of any length: rows too short to fill registers are taken several at a
// time, as one.
template <class T>
void add_any_columns(const T* x, const T* dy, const T* center, std::int64_t rows, std::int64_t n,
                     double* sums) {
  constexpr std::int64_t kWidth = 64;
  const std::int64_t times = (kWidth + n - 1) / n, width = times * n, whole = rows / times;
  if (times == 1 || whole == 0) return add_columns(x, dy, center, rows, n, sums);
  std::vector<T> centers(static_cast<std::size_t>(width));
  for (std::int64_t i = 0; i < width; ++i) centers[static_cast<std::size_t>(i)] = center[i % n];
  std::vector<double> together(static_cast<std::size_t>(2 * width));
  add_columns(x, dy, centers.data(), whole, width, together.data());
  for (std::int64_t i = 0; i < width; ++i) {
    sums[i % n] += together[static_cast<std::size_t>(i)];
    sums[n + i % n] += together[static_cast<std::size_t>(width + i)];
  }
  add_columns(x + whole * width, dy ? dy + whole * width : nullptr, center, rows - whole * times, n,
              sums);
}

template <class T>
class ColumnSums {
 public:
  ColumnSums(WorkerPool* pool, const ChannelSumsArgs& a)
      : a_(a), x_(static_cast<const T*>(a.x.data())), dy_(static_cast<const T*>(a.dy.data())),
        pool_(a.x.elements() <= kSmallWork ? nullptr : pool),
        rows_(std::max<std::int64_t>(128, kBlock / a.n)), chunks_((a.rows + rows_ - 1) / rows_),
        sums_(static_cast<std::size_t>(a.outer * chunks_ * 2 * a.n)) {}

  /// Sums of the first kind and the second of block o are then at sums(o), n of each.
  void add_up(const T* center) {
    const std::int64_t items = a_.outer * chunks_,
                       group =
                           std::max<std::int64_t>(1, kBlock / (std::min(rows_, a_.rows) * a_.n));
    std::fill(sums_.begin(), sums_.end(), 0.0);
    for_blocks(pool_, (items + group - 1) / group, [&](int b) {
      for (std::int64_t i = b * group; i < std::min(items, (b + 1) * group); ++i) {
        const std::int64_t o = i / chunks_, first = i % chunks_ * rows_,
                           at = (o * a_.rows + first) * a_.n;
        const T* dy = dy_ ? dy_ + at : nullptr;
        const std::int64_t rows = std::min(rows_, a_.rows - first);
        const std::span<double> found(sums_.data() + i * 2 * a_.n,
                                      static_cast<std::size_t>(2 * a_.n));
        add_any_columns(x_ + at, dy, center + o * a_.n, rows, a_.n, found.data());
        if (std::is_same_v<T, double> ||
            std::all_of(found.begin(), found.end(), [](double s) { return std::isfinite(s); }))
          continue;
        // four floats overflowed, or x holds infinities or NaN
        std::fill(found.begin(), found.end(), 0.0);
        add_in_double(x_ + at, dy, center + o * a_.n, rows, a_.n, found.data());
      }
    });
    for (std::int64_t i = 0; i < items; ++i)
      for (std::int64_t j = 0; i % chunks_ && j < 2 * a_.n; ++j)
        sums(i / chunks_)[j] += sums_[static_cast<std::size_t>(i * 2 * a_.n + j)];
  }
  double* sums(std::int64_t o) { return sums_.data() + o * chunks_ * 2 * a_.n; }

  /// A point near the mean of each column: that of a few rows, 0 where it is not finite.
  std::vector<T> centers() const {
    constexpr std::int64_t kFew = 16;
    const std::int64_t few = std::min(kFew, a_.rows);
    std::vector<T> found;
    for (std::int64_t o = 0; o < a_.outer; ++o) {
      std::vector<double> total(static_cast<std::size_t>(a_.n));
      for (std::int64_t k = 0; k < few; ++k)
        for (std::int64_t j = 0; j < a_.n; ++j)
          total[static_cast<std::size_t>(j)] +=
              double(x_[(o * a_.rows + k * a_.rows / few) * a_.n + j]);
      for (double t : total)
        found.push_back(std::isfinite(t) ? static_cast<T>(t / static_cast<double>(few)) : T(0));
    }
    return found;
  }

 private:
  const ChannelSumsArgs& a_;
  const T *x_, *dy_;
  WorkerPool* pool_;
  const std::int64_t rows_, chunks_;  // rows of a chunk; chunks of a block
  std::vector<double> sums_;          // [outer, chunks, 2, n]
};

template <class T>
void find_moments(WorkerPool* pool, const ChannelSumsArgs& a) {
  auto *mean = static_cast<double*>(a.first.data), *variance = static_cast<double*>(a.second.data);
  if (a.rows == 0) {
    for (double* moment : {mean, variance})
      std::fill_n(moment, a.outer * a.n, std::numeric_limits<double>::quiet_NaN());
    return;
  }
  ColumnSums<T> columns(pool, a);
  std::vector<T> center = columns.centers();
  const double count = static_cast<double>(a.rows);
  for (bool is_last = false;; is_last = true) {
    columns.add_up(center.data());
    bool is_far = false;
    for (std::int64_t o = 0; o < a.outer; ++o)
      for (std::int64_t j = 0; j < a.n; ++j) {
        T& from = center[static_cast<std::size_t>(o * a.n + j)];
        const double offset = columns.sums(o)[j] / count,
                     square = columns.sums(o)[a.n + j] / count - offset * offset;
        // the few rows were so much outliers that the squares, of floats, lose against each other
        constexpr double kFar = 16;
        is_far |= offset * offset > kFar * square;
        mean[o * a.n + j] = double(from) + offset;
        variance[o * a.n + j] = square < 0 ? 0 : square;
        if (const T near = static_cast<T>(mean[o * a.n + j]); std::isfinite(near)) from = near;
      }
    if (!is_far || is_last) return;
  }
}

template <class T>
void find_sums(WorkerPool* pool, const ChannelSumsArgs& a) {
  ColumnSums<T> columns(pool, a);
  auto *first = static_cast<double*>(a.first.data), *second = static_cast<double*>(a.second.data);
  if (a.rows == 0) {
    for (double* sum : {first, second}) std::fill_n(sum, a.outer * a.n, 0.0);
    return;
  }
  columns.add_up(static_cast<const T*>(a.mean.data()));
  for (std::int64_t o = 0; o < a.outer; ++o) {
    std::copy_n(columns.sums(o), a.n, first + o * a.n);
    std::copy_n(columns.sums(o) + a.n, a.n, second + o * a.n);
  }
}

}  // namespace

void CpuPrimitives::channel_sums(Stream&, const ChannelSumsArgs& a) const {
  if (a.first.elements() == 0) return;
  visit_wide_float("normalisation", a.x.dtype, [&]<class T>(type_tag<T>) {
    a.mean.data() ? find_sums<T>(pool_, a) : find_moments<T>(pool_, a);
  });
}

}  // namespace troupe::cpu
