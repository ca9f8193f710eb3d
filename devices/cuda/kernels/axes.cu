// Running sums, search, and choosing by indices along an axis.
//
// A scan of many or of short columns has a thread a column. A scan of long rows has a block a row:
// tiles of kThreads * kPerThread elements, each thread's own first, then those of the block by
// Hillis and Steele (1986), then the carry of the tiles before.
#include <troupe/devices/cuda/kernels/axes.hpp>
#include <troupe/devices/cuda/kernels/elements.hpp>
#include <troupe/devices/cuda/kernels/grid.hpp>
#include <troupe/devices/cuda/kernels/launch.hpp>

namespace troupe::cuda {
namespace {

// ---- scans

// Steps s -> a s + b, and their composition. Sums have a = 1, products b = 0.
template <class Acc>
struct Step {
  Acc a, b;
};
template <ScanOp op, class Acc>
__device__ Step<Acc> composed(Step<Acc> first, Step<Acc> then) {
  if constexpr (op == ScanOp::sum) return {first.a, plus(first.b, then.b)};
  else if constexpr (op == ScanOp::product) return {times(first.a, then.a), first.b};
  else return {times(first.a, then.a), plus(then.b, times(then.a, first.b))};
}
template <ScanOp op, class Acc>
__device__ Acc value_of(Step<Acc> s) {
  return op == ScanOp::product ? s.a : s.b;
}
template <class Acc>
__device__ Acc number(double value) {
  if constexpr (std::is_same_v<Acc, Complex<double>>) return {value, 0};
  else return static_cast<Acc>(value);
}

struct ScanShape {
  std::int64_t outer, extent, inner;
  bool is_exclusive, is_reverse;
};

template <class T, ScanOp op>
struct Elements {
  using Acc = Accumulator<T>;
  const T *x, *a;
  T* out;
  ScanShape s;

  /// Returns the place of the n-th element of a column in the order of the scan.
  __device__ std::int64_t at(std::int64_t column, std::int64_t n) const {
    const std::int64_t outer = column / s.inner;
    return (outer * s.extent + (s.is_reverse ? s.extent - 1 - n : n)) * s.inner +
           (column - outer * s.inner);
  }
  __device__ Step<Acc> none() const { return {number<Acc>(1), number<Acc>(0)}; }
  __device__ Step<Acc> step(std::int64_t column, std::int64_t n) const {
    const std::int64_t here = at(column, n);
    const Acc value = accumulated(x[here]);
    if constexpr (op == ScanOp::sum) return {number<Acc>(1), value};
    else if constexpr (op == ScanOp::product) return {value, number<Acc>(0)};
    // A factor stands at the later of the two elements that it joins.
    else
      return {n == 0 ? number<Acc>(0) : accumulated(a[s.is_reverse ? here + s.inner : here]),
              value};
  }
  __device__ void store(std::int64_t column, std::int64_t n, Acc value) const {
    out[at(column, n)] = narrowed<T>(value);
  }
};

template <class T, ScanOp op>
__global__ __launch_bounds__(kThreads) void scan_columns(Elements<T, op> e) {
  using Acc = Accumulator<T>;
  for (std::int64_t c = first_thread<std::int64_t>(); c < e.s.outer * e.s.inner;
       c += all_threads<std::int64_t>()) {
    Step<Acc> so_far = e.none();
    for (std::int64_t n = 0; n < e.s.extent; ++n) {
      if (e.s.is_exclusive) e.store(c, n, value_of<op>(so_far));
      const Step<Acc> next = e.step(c, n);
      so_far = n == 0 ? next : composed<op>(so_far, next);
      if (!e.s.is_exclusive) e.store(c, n, value_of<op>(so_far));
    }
  }
}

constexpr int kPerThread = 4;
constexpr std::int64_t kTile = std::int64_t{kThreads} * kPerThread;
constexpr std::int64_t kLongScan = kEnoughBlocks < 100 ? 300 : 512;

template <class T, ScanOp op>
__global__ __launch_bounds__(kThreads) void scan_rows(Elements<T, op> e) {
  using Acc = Accumulator<T>;
  __shared__ Step<Acc> of_threads[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  for (std::int64_t row = blockIdx.x; row < e.s.outer; row += gridDim.x) {
    Step<Acc> carry = e.none();
    for (std::int64_t tile = 0; tile < e.s.extent; tile += kTile) {
      const std::int64_t first = tile + thread * kPerThread, left = e.s.extent - first,
                         count = left < 0            ? 0
                                 : left < kPerThread ? left
                                                     : kPerThread;
      Step<Acc> mine[kPerThread], sum = e.none();
      for (int k = 0; k < count; ++k) {
        const Step<Acc> next = e.step(row, first + k);
        sum = k == 0 ? next : composed<op>(sum, next);
        mine[k] = sum;
      }
      of_threads[thread] = sum;
      __syncthreads();
      for (int by = 1; by < kThreads; by *= 2) {
        Step<Acc> other = sum;
        if (thread >= by) other = composed<op>(of_threads[thread - by], sum);
        __syncthreads();
        sum = of_threads[thread] = other;
        __syncthreads();
      }
      // The sum before this thread's elements: of the tiles before, then of the threads before.
      Step<Acc> before = carry;
      const bool has_before = tile > 0 || thread > 0;
      if (thread > 0)
        before = tile == 0 ? of_threads[thread - 1] : composed<op>(carry, of_threads[thread - 1]);
      for (int k = 0; k < count; ++k) {
        const Step<Acc> up_to = has_before ? composed<op>(before, mine[k]) : mine[k];
        const bool is_first = k == 0 && !has_before;
        const Step<Acc> earlier = k == 0       ? before
                                  : has_before ? composed<op>(before, mine[k - 1])
                                               : mine[k - 1];
        e.store(row, first + k,
                value_of<op>(!e.s.is_exclusive ? up_to
                             : is_first        ? e.none()
                                               : earlier));
      }
      const Step<Acc> all = of_threads[kThreads - 1];
      carry = tile == 0 ? all : composed<op>(carry, all);
      __syncthreads();
    }
  }
}

template <class T, ScanOp op>
cudaError_t run_scan(cudaStream_t stream, const void* x, const void* a, void* out,
                     const ScanShape& s) {
  const Elements<T, op> e{static_cast<const T*>(x), static_cast<const T*>(a), static_cast<T*>(out),
                          s};
  if (s.inner == 1 && s.extent >= kLongScan)
    return launch(stream, blocks_of(s.outer, 1), dim3(kThreads), 0, scan_rows<T, op>, e);
  return launch(stream, blocks_of(s.outer * s.inner), dim3(kThreads), 0, scan_columns<T, op>, e);
}

// ---- search

// NaN is the largest.
template <class T>
__device__ bool is_below(T x, T y) {
  const auto a = wide(x), b = wide(y);
  if constexpr (std::is_floating_point_v<decltype(wide(x))>) return a < b || (b != b && a == a);
  else return a < b;
}

template <class T>
__global__ __launch_bounds__(kThreads) void search_rows(const T* __restrict__ sorted,
                                                        const T* __restrict__ values,
                                                        std::int64_t* __restrict__ out,
                                                        std::int64_t all, std::int64_t extent,
                                                        std::int64_t n, bool is_right) {
  for (std::int64_t i = first_thread<std::int64_t>(); i < all; i += all_threads<std::int64_t>()) {
    const T* row = sorted + i / n * extent;
    std::int64_t low = 0, high = extent;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      const bool is_before =
          is_right ? !is_below(values[i], row[middle]) : is_below(row[middle], values[i]);
      if (is_before) low = middle + 1;
      else high = middle;
    }
    out[i] = low;
  }
}

// ---- choosing

template <class T>
__global__ __launch_bounds__(kThreads) void take(const T* __restrict__ x, Indices indices,
                                                 T* __restrict__ out, std::int64_t all,
                                                 std::int64_t extent, std::int64_t n,
                                                 std::int64_t inner, IndexRecord* record) {
  for (std::int64_t i = first_thread<std::int64_t>(); i < all; i += all_threads<std::int64_t>()) {
    const std::int64_t index = indices[i];
    if (is_inside(index, extent))
      out[i] = x[(i / (n * inner) * extent + index) * inner + i % inner];
    else atomicMin(&record->word, IndexRecord::packed(i, index));
  }
}

template <class T>
__device__ T added(T x, T y) {
  if constexpr (std::is_integral_v<T>) return narrowed<T>(accumulated(x) + accumulated(y));
  else if constexpr (is_complex_type<T>) return {x.re + y.re, x.im + y.im};
  else return narrowed<T>(wide(x) + wide(y));
}

// A thread a column: sums of equal indices are in the order of j.
template <class T>
__global__ __launch_bounds__(kThreads) void add(const T* __restrict__ x, Indices indices, T* out,
                                                std::int64_t outer, std::int64_t extent,
                                                std::int64_t n, std::int64_t inner,
                                                IndexRecord* record) {
  for (std::int64_t c = first_thread<std::int64_t>(); c < outer * inner;
       c += all_threads<std::int64_t>()) {
    const std::int64_t o = c / inner, i = c - o * inner;
    T* to = out + o * extent * inner + i;
    for (std::int64_t k = 0; k < extent; ++k) to[k * inner] = T{};
    for (std::int64_t j = 0; j < n; ++j) {
      const std::int64_t at = (o * n + j) * inner + i, index = indices[at];
      if (is_inside(index, extent)) to[index * inner] = added(to[index * inner], x[at]);
      else atomicMin(&record->word, IndexRecord::packed(at, index));
    }
  }
}

struct Depths {
  int depth;
  std::int64_t extent[kMaxRank];
  IndexRecord* record[kMaxRank];
};

__global__ __launch_bounds__(kThreads) void name_rows(Indices coordinates, std::int64_t* rows,
                                                      std::int64_t all, std::int64_t n, Depths d) {
  for (std::int64_t i = first_thread<std::int64_t>(); i < all; i += all_threads<std::int64_t>()) {
    std::int64_t row = i / n;
    bool is_good = true;
    for (int k = 0; k < d.depth; ++k) {
      const std::int64_t at = i * d.depth + k, c = coordinates[at];
      if (!is_inside(c, d.extent[k])) {
        is_good = false;
        atomicMin(&d.record[k]->word, IndexRecord::packed(at, c));
      }
      row = row * d.extent[k] + c;
    }
    rows[i] = is_good ? row : -1;
  }
}

}  // namespace

cudaError_t scan(cudaStream_t stream, ScanOp op, DType dtype, const void* x, const void* a,
                 void* out, std::int64_t outer, std::int64_t extent, std::int64_t inner,
                 bool is_exclusive, bool is_reverse) {
  const ScanShape s{outer, extent, inner, is_exclusive, is_reverse};
  if (outer * extent * inner == 0) return cudaSuccess;
  return visit_elements(dtype, [&]<class T>(type_tag<T>) -> cudaError_t {
    if constexpr (std::is_same_v<T, bool>) return cudaErrorInvalidValue;
    else {
      if (op == ScanOp::sum) return run_scan<T, ScanOp::sum>(stream, x, a, out, s);
      if (op == ScanOp::product) return run_scan<T, ScanOp::product>(stream, x, a, out, s);
      return run_scan<T, ScanOp::linear>(stream, x, a, out, s);
    }
  });
}

cudaError_t search(cudaStream_t stream, DType dtype, const void* sorted, const void* values,
                   void* out, std::int64_t rows, std::int64_t extent, std::int64_t n,
                   bool is_right) {
  if (rows * n == 0) return cudaSuccess;
  return visit_elements(dtype, [&]<class T>(type_tag<T>) -> cudaError_t {
    if constexpr (is_complex_type<T> || std::is_same_v<T, bool>) return cudaErrorInvalidValue;
    else
      return launch(stream, blocks_of(rows * n), dim3(kThreads), 0, search_rows<T>,
                    static_cast<const T*>(sorted), static_cast<const T*>(values),
                    static_cast<std::int64_t*>(out), rows * n, extent, n, is_right);
  });
}

cudaError_t take_along(cudaStream_t stream, int element_bytes, const void* x, const void* indices,
                       bool are_i64, void* out, std::int64_t outer, std::int64_t extent,
                       std::int64_t n, std::int64_t inner, IndexRecord* record) {
  const std::int64_t all = outer * n * inner;
  if (all == 0) return cudaSuccess;
  return visit_bytes(element_bytes, [&]<class T>(type_tag<T>) {
    return launch(stream, blocks_of(all), dim3(kThreads), 0, take<T>, static_cast<const T*>(x),
                  Indices{indices, are_i64}, static_cast<T*>(out), all, extent, n, inner, record);
  });
}

cudaError_t add_along(cudaStream_t stream, DType dtype, const void* x, const void* indices,
                      bool are_i64, void* out, std::int64_t outer, std::int64_t extent,
                      std::int64_t n, std::int64_t inner, IndexRecord* record) {
  if (outer * inner == 0) return cudaSuccess;
  return visit_elements(dtype, [&]<class T>(type_tag<T>) -> cudaError_t {
    if constexpr (std::is_same_v<T, bool>) return cudaErrorInvalidValue;
    else
      return launch(stream, blocks_of(outer * inner), dim3(kThreads), 0, add<T>,
                    static_cast<const T*>(x), Indices{indices, are_i64}, static_cast<T*>(out),
                    outer, extent, n, inner, record);
  });
}

cudaError_t rows_of_coordinates(cudaStream_t stream, const void* coordinates, bool are_i64,
                                std::int64_t* rows, std::int64_t outer, std::int64_t n, int depth,
                                const std::int64_t* extents, IndexRecord* const* records) {
  if (outer * n == 0) return cudaSuccess;
  Depths d{.depth = depth, .extent = {}, .record = {}};
  for (int k = 0; k < depth; ++k) d.extent[k] = extents[k], d.record[k] = records[k];
  return launch(stream, blocks_of(outer * n), dim3(kThreads), 0, name_rows,
                Indices{coordinates, are_i64}, rows, outer * n, n, d);
}

}  // namespace troupe::cuda
