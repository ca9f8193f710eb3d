// Softmax and cross entropy over rows. A row is read twice: for its largest element and the sum of
// the exponentials, found together, and for the result.
#include <troupe/devices/cuda/kernels/launch.hpp>
#include <troupe/devices/cuda/kernels/nn.hpp>
#include <troupe/devices/cuda/kernels/row_group.hpp>

namespace troupe::cuda {
namespace {

__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }

// The sum of exp(x - top) without the term of one element that is `top`: beside that 1 a small rest
// would be lost.
template <class W>
struct LogSum {
  W top;
  double rest;
};
struct MergeLogSums {
  template <class W>
  __device__ LogSum<W> operator()(LogSum<W> a, LogSum<W> b) const {
    if (a.top != a.top || b.top != b.top) return {W(NAN), NAN};
    if (b.top == -W(INFINITY)) return a;
    if (a.top == -W(INFINITY)) return b;
    const LogSum<W> high = b.top > a.top ? b : a, low = b.top > a.top ? a : b;
    const double more = 1 + low.rest;
    return {high.top,
            high.rest + (low.top == high.top ? more : more * exponential(low.top - high.top))};
  }
};

// The sum over a row without element `but`, if that is not negative.
template <class T>
__device__ LogSum<Wide<T>> log_sum_of(const T* x, std::int64_t n, std::int64_t but, int lane,
                                      int lanes) {
  using W = Wide<T>;
  LogSum<W> sum{-W(INFINITY), 0};
  for (std::int64_t i = lane; i < n; i += lanes)
    if (i != but) sum = MergeLogSums{}(sum, LogSum<W>{wide(x[i]), 0});
  return merged_in_group(sum, lanes, MergeLogSums{});
}

// A row of nothing but -infinity has no softmax: NaN, as the formula gives.
template <class T>
__global__ __launch_bounds__(kThreads) void softmax_rows(const T* __restrict__ in,
                                                         T* __restrict__ out, RowShape s,
                                                         bool is_log) {
  using W = Wide<T>;
  for (RowWalk w(s); w.is_inside(); w.next()) {
    const T* x = in + w.row * s.n;
    const LogSum<W> sum = log_sum_of(x, w.has_row() ? s.n : 0, -1, w.lane, s.lanes);
    if (!w.has_row()) continue;
    const W log = static_cast<W>(log1p(sum.rest)),
            factor = sum.top == W(INFINITY) ? W(NAN) : static_cast<W>(1 / (1 + sum.rest));
    T* y = out + w.row * s.n;
    for (std::int64_t i = w.lane; i < s.n; i += s.lanes) {
      // In two steps: the sum of both shifts has no digits for the second where the first is large.
      const W shifted = wide(x[i]) - sum.top;
      y[i] = narrowed<T>(is_log ? shifted - log : exponential(shifted) * factor);
    }
  }
}

// Returns false, with the index recorded, if row w has no label that is a class.
__device__ inline bool find_label(const RowWalk& w, Indices labels, std::int64_t classes,
                                  IndexRecord* record, std::int64_t& label) {
  label = w.has_row() ? labels[w.row] : 0;
  if (is_inside(label, classes)) return w.has_row();
  if (w.lane == 0) atomicMin(&record->word, IndexRecord::packed(w.row, label));
  return false;
}

template <class T>
__global__ __launch_bounds__(kThreads) void losses(const T* __restrict__ logits, Indices labels,
                                                   T* __restrict__ loss, RowShape s,
                                                   IndexRecord* record) {
  for (RowWalk w(s); w.is_inside(); w.next()) {
    std::int64_t label;
    const bool is_row = find_label(w, labels, s.n, record, label);
    const T* x = logits + w.row * s.n;
    const auto others = log_sum_of(x, is_row ? s.n : 0, label, w.lane, s.lanes);
    if (!is_row || w.lane > 0) continue;
    const double own = wide(x[label]), top = others.top, behind = top - own,
                 rest = others.top == -INFINITY ? 0 : 1 + others.rest;
    double value = top > own ? behind + log(rest + exp(-behind)) : log1p(rest * exp(behind));
    if (top == INFINITY || own == INFINITY) value = NAN;
    loss[w.row] = narrowed<T>(value);
  }
}

template <class T>
__global__ __launch_bounds__(kThreads) void loss_gradients(const T* __restrict__ logits,
                                                           Indices labels,
                                                           const T* __restrict__ scale,
                                                           T* __restrict__ out, RowShape s,
                                                           IndexRecord* record) {
  using W = Wide<T>;
  for (RowWalk w(s); w.is_inside(); w.next()) {
    std::int64_t label;
    const bool is_row = find_label(w, labels, s.n, record, label);
    const T* x = logits + w.row * s.n;
    const auto others = log_sum_of(x, is_row ? s.n : 0, label, w.lane, s.lanes);
    if (!is_row) continue;
    const W at_label = wide(x[label]), top = others.top > at_label ? others.top : at_label;
    // As on the CPU: a NaN in any of them is one in all.
    const double rest = others.top == -W(INFINITY)
                            ? 0
                            : (1 + others.rest) * exp(double(others.top) - double(top)),
                 sum = rest + exp(double(at_label) - double(top)), times = wide(scale[w.row]);
    const W factor = static_cast<W>(times / sum);
    T* y = out + w.row * s.n;
    for (std::int64_t i = w.lane; i < s.n; i += s.lanes)
      y[i] = i == label ? narrowed<T>(-(rest / sum) * times)
                        : narrowed<T>(exponential(wide(x[i]) - top) * factor);
  }
}

}  // namespace

cudaError_t softmax(cudaStream_t stream, DType dtype, const void* in, void* out, std::int64_t rows,
                    std::int64_t n, bool is_log) {
  if (rows * n == 0) return cudaSuccess;
  const RowShape s(rows, n);
  return visit_real(dtype, [&]<class T>(type_tag<T>) {
    return launch(stream, s.blocks(), dim3(kThreads), 0, softmax_rows<T>, static_cast<const T*>(in),
                  static_cast<T*>(out), s, is_log);
  });
}

cudaError_t cross_entropy(cudaStream_t stream, DType dtype, const void* logits, const void* labels,
                          bool are_i64, void* loss, std::int64_t rows, std::int64_t n,
                          IndexRecord* record) {
  if (rows == 0) return cudaSuccess;
  const RowShape s(rows, n);
  return visit_real(dtype, [&]<class T>(type_tag<T>) {
    return launch(stream, s.blocks(), dim3(kThreads), 0, losses<T>, static_cast<const T*>(logits),
                  Indices{labels, are_i64}, static_cast<T*>(loss), s, record);
  });
}

cudaError_t cross_entropy_gradient(cudaStream_t stream, DType dtype, const void* logits,
                                   const void* labels, bool are_i64, const void* scale, void* out,
                                   std::int64_t rows, std::int64_t n, IndexRecord* record) {
  if (rows == 0) return cudaSuccess;
  const RowShape s(rows, n);
  return visit_real(dtype, [&]<class T>(type_tag<T>) {
    return launch(stream, s.blocks(), dim3(kThreads), 0, loss_gradients<T>,
                  static_cast<const T*>(logits), Indices{labels, are_i64},
                  static_cast<const T*>(scale), static_cast<T*>(out), s, record);
  });
}

}  // namespace troupe::cuda
