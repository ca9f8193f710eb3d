// The softmax of attention's scores, whose products are those of a library, and its gradient. A
// group of threads computes a row.
#include <troupe/devices/cuda/kernels/launch.hpp>
#include <troupe/devices/cuda/kernels/nn.hpp>
#include <troupe/devices/cuda/kernels/row_group.hpp>

namespace troupe::cuda {
namespace {

__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }

// A NaN is larger than any number.
struct Largest {
  template <class W>
  __device__ W operator()(W a, W b) const {
    return a != a || (b == b && a > b) ? a : b;
  }
};

// The scores of one row, masked.
template <class T>
struct ScoreRow {
  using W = Wide<T>;
  const W* scores;
  const MaskView& mask;
  W scale;
  std::int64_t at;   // the first element of the row's mask
  std::int64_t end;  // the first key that may not be seen

  __device__ ScoreRow(const W* all, const MaskView& m, const ScoreShape& s, std::int64_t r)
      : scores(all + r * s.keys), mask(m), scale(static_cast<W>(s.scale)) {
    const std::int64_t row = s.first + r, query = row % s.queries, head = row / s.queries % s.heads,
                       item = row / s.queries / s.heads;
    at = item * m.batch + head * m.head + query * m.query;
    end = s.keys;
    if (s.is_causal) {
      const std::int64_t last = query + s.keys - s.queries + 1;
      end = last < 0 ? 0 : last < s.keys ? last : s.keys;
    }
  }
  __device__ W operator[](std::int64_t key) const {
    if (key >= end) return -W(INFINITY);
    const W score = scores[key] * scale;
    if (!mask.data) return score;
    const std::int64_t there = at + key * mask.key;
    if (mask.is_boolean) return static_cast<const bool*>(mask.data)[there] ? score : -W(INFINITY);
    return score + wide(static_cast<const T*>(mask.data)[there]);
  }
};

// A row's largest score, and the sum of the exponentials of the differences from it.
template <class T>
struct RowSums {
  Wide<T> top;
  double total;
};
template <class T>
__device__ RowSums<T> sums_of(const ScoreRow<T>& row, std::int64_t keys, int lane, int lanes) {
  using W = Wide<T>;
  W top = -W(INFINITY);
  for (std::int64_t k = lane; k < keys; k += lanes) top = Largest{}(top, row[k]);
  top = merged_in_group(top, lanes, Largest{});
  double total = 0;
  for (std::int64_t k = lane; top != -W(INFINITY) && k < keys; k += lanes)
    total += exponential(row[k] - top);
  return {top, merged_in_group(total, lanes, Plus{})};
}
template <class T>
__device__ Wide<T> probability(const ScoreRow<T>& row, const RowSums<T>& sums, std::int64_t key) {
  return sums.total == 0 ? 0
                         : exponential(row[key] - sums.top) * static_cast<Wide<T>>(1 / sums.total);
}

template <class T>
__global__ __launch_bounds__(kThreads) void attend_rows(const Wide<T>* __restrict__ scores,
                                                        T* __restrict__ probabilities,
                                                        Wide<T>* __restrict__ log_sum,
                                                        MaskView mask, ScoreShape s,
                                                        RowShape rows) {
  using W = Wide<T>;
  for (RowWalk w(rows); w.is_inside(); w.next()) {
    const ScoreRow<T> row(scores, mask, s, w.has_row() ? w.row : 0);
    const RowSums<T> sums = sums_of(row, w.has_row() ? s.keys : 0, w.lane, rows.lanes);
    if (!w.has_row()) continue;
    for (std::int64_t k = w.lane; k < s.keys; k += rows.lanes)
      probabilities[w.row * s.keys + k] = narrowed<T>(probability(row, sums, k));
    if (w.lane == 0)
      log_sum[s.first + w.row] =
          sums.total == 0 ? W(INFINITY) : static_cast<W>(double(sums.top) + log(sums.total));
  }
}

template <class T>
struct RowsBack {
  const Wide<T>* scores;
  Wide<T>* dp;
  T *probabilities, *ds;
  const T *y, *dy;
  std::int64_t width;
};

template <class T>
__global__ __launch_bounds__(kThreads) void attend_rows_back(RowsBack<T> b, MaskView mask,
                                                             ScoreShape s, RowShape rows) {
  using W = Wide<T>;
  for (RowWalk w(rows); w.is_inside(); w.next()) {
    const std::int64_t keys = w.has_row() ? s.keys : 0, width = w.has_row() ? b.width : 0;
    const ScoreRow<T> row(b.scores, mask, s, w.has_row() ? w.row : 0);
    const RowSums<T> sums = sums_of(row, keys, w.lane, rows.lanes);
    double weighted = 0;
    for (std::int64_t i = w.lane; i < width; i += rows.lanes) {
      const std::int64_t at = (s.first + w.row) * b.width + i;
      weighted += double(wide(b.y[at])) * double(wide(b.dy[at]));
    }
    const W mean = static_cast<W>(merged_in_group(weighted, rows.lanes, Plus{}));
    for (std::int64_t k = w.lane; k < keys; k += rows.lanes) {
      const std::int64_t at = w.row * s.keys + k;
      const W p = probability(row, sums, k), d = p * (b.dp[at] - mean);
      b.probabilities[at] = narrowed<T>(p);
      b.dp[at] = d;
      b.ds[at] = narrowed<T>(d * static_cast<W>(s.scale));
    }
  }
}

}  // namespace

cudaError_t attend(cudaStream_t stream, DType dtype, const void* scores, void* probabilities,
                   void* log_sum, const MaskView& mask, const ScoreShape& s) {
  if (s.rows == 0) return cudaSuccess;
  const RowShape rows(s.rows, s.keys);
  return visit_real(dtype, [&]<class T>(type_tag<T>) {
    return launch(stream, rows.blocks(), dim3(kThreads), 0, attend_rows<T>,
                  static_cast<const Wide<T>*>(scores), static_cast<T*>(probabilities),
                  static_cast<Wide<T>*>(log_sum), mask, s, rows);
  });
}

cudaError_t attend_back(cudaStream_t stream, DType dtype, const void* scores, void* dp,
                        void* probabilities, void* ds, const void* y, const void* dy,
                        std::int64_t width, const MaskView& mask, const ScoreShape& s) {
  if (s.rows * s.keys == 0) return cudaSuccess;
  const RowShape rows(s.rows, s.keys);
  return visit_real(dtype, [&]<class T>(type_tag<T>) {
    const RowsBack<T> b{static_cast<const Wide<T>*>(scores),
                        static_cast<Wide<T>*>(dp),
                        static_cast<T*>(probabilities),
                        static_cast<T*>(ds),
                        static_cast<const T*>(y),
                        static_cast<const T*>(dy),
                        width};
    return launch(stream, rows.blocks(), dim3(kThreads), 0, attend_rows_back<T>, b, mask, s, rows);
  });
}

}  // namespace troupe::cuda
