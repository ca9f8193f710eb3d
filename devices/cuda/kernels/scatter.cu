// Scatter: rows of updates are applied to rows of `out` in the order of their indices, so that
// floating-point sums have the bits of the CPU device's.
//
// Without sorting and without memory: every row has one owner, and every owner looks at every
// index. The rows are dealt to B groups of blocks, a power of two up to 1,024, by their low bits,
// since frequent indices are often neighbours; in a block to W workers of C threads by the next
// bits. If B is small, the columns are cut among more blocks.
//
//   row = ... | worker: log2 W bits | block: log2 B bits        threads = W * C, C over columns
//
// A block reads indices, kPiece at a time, and lists those that are its own, in order: ranks among
// the lanes of a warp by a ballot, among warps by a sum of their counts. Then each worker walks the
// list and applies what falls to it. Updates of single elements are read along with the indices,
// side by side.
//
// Cost, estimated for an H200 and not measured: each block reads all n indices, 1,024 in a step of
// a few hundred cycles, and 8 blocks share a multiprocessor. A gradient of an embedding (n = 8,192,
// 50,000 rows of 768) is bound by its updates. Single elements (n = 10^6) take about 0.5 ms, which
// is the reading. Updates of one element wait for each other, some 50 cycles each: 10^6 updates of
// the same element take tens of milliseconds. If that matters, sort the indices and reduce
// segments.
#include <troupe/devices/cuda/kernels/elements.hpp>
#include <troupe/devices/cuda/kernels/grid.hpp>
#include <troupe/devices/cuda/kernels/kernels.hpp>
#include <troupe/devices/cuda/kernels/launch.hpp>

namespace troupe::cuda {
namespace {

constexpr int kWarps = kThreads / kWarp;
constexpr int kPerThread = 4;  // indices that a thread reads for a list
constexpr int kPiece = kThreads * kPerThread;
constexpr int kLeastColumns = 128;  // a block is worth so many

// ---- one update

template <class T>
__device__ T added(T x, T y, bool minus) {
  if constexpr (std::is_same_v<T, bool>) return minus ? x != y : x || y;
  else if constexpr (is_complex_type<T>)
    return minus ? T{x.re - y.re, x.im - y.im} : T{x.re + y.re, x.im + y.im};
  else if constexpr (std::is_integral_v<T>)
    return narrowed<T>(minus ? accumulated(x) - accumulated(y) : accumulated(x) + accumulated(y));
  else return narrowed<T>(minus ? wide(x) - wide(y) : wide(x) + wide(y));
}

template <class T>
__device__ T multiplied(T x, T y) {
  if constexpr (std::is_same_v<T, bool>) return x && y;
  else if constexpr (is_complex_type<T> || std::is_integral_v<T>)
    return narrowed<T>(times(accumulated(x), accumulated(y)));
  else return narrowed<T>(wide(x) * wide(y));
}

// NaN wins, as in reductions; complex numbers have no order and were refused before.
template <class T>
__device__ T extreme(T x, T y, bool largest) {
  if constexpr (is_complex_type<T>) return x;
  else {
    const auto a = wide(x), b = wide(y);
    return a != a || (largest ? b <= a : b >= a) ? x : y;
  }
}

template <class T>
__device__ T combined(ScatterOp op, T x, T y) {
  switch (op) {
    case ScatterOp::add: return added(x, y, false);
    case ScatterOp::sub: return added(x, y, true);
    case ScatterOp::min: return extreme(x, y, false);
    case ScatterOp::max: return extreme(x, y, true);
    case ScatterOp::mul: return multiplied(x, y);
    case ScatterOp::update: break;
  }
  return y;
}

// ---- owners

struct Owners {
  int log2_blocks;             // B
  int log2_workers;            // W
  std::int64_t cuts, columns;  // blocks that share rows, and the columns of each

  // A block has 256 threads, so that at most that many share a row.
  static Owners of(std::int64_t extent, std::int64_t inner, std::int64_t n) {
    Owners o{};
    const std::int64_t most =
        power_of_two(std::min<std::int64_t>({kMostOwners, extent, std::max<std::int64_t>(n, 1)}));
    while (std::int64_t{1} << o.log2_blocks < most) ++o.log2_blocks;
    const std::int64_t rows = ceil_div(extent, most),
                       lanes = power_of_two(std::min<std::int64_t>(inner, kWarp));
    while (2 << o.log2_workers <= kThreads / lanes && std::int64_t{1} << o.log2_workers < rows)
      ++o.log2_workers;
    o.cuts = std::max<std::int64_t>(
        1, std::min(kMostBlocks / most, ceil_div(inner, std::int64_t{kLeastColumns})));
    o.columns = ceil_div(inner, o.cuts);
    return o;
  }
  std::int64_t blocks() const { return cuts << log2_blocks; }

  __device__ bool has(std::int64_t row, std::int64_t block) const {
    return (row & ((std::int64_t{1} << log2_blocks) - 1)) == block;
  }
  __device__ int worker_of(std::int64_t row) const {
    return static_cast<int>(row >> log2_blocks) & ((1 << log2_workers) - 1);
  }
};

// ---- a block's list

template <class T>
struct List {
  std::int64_t row[kPiece];
  T single[kPiece];                                // the update, where it is one element
  std::uint16_t at[kPiece];                        // position in the piece
  alignas(16) int counts[2][kPerThread * kWarps];  // two turns, so that one barrier separates them
};

// How many entries the counts before `part` have.
__device__ inline int sum_before(const int* counts, int part) {
  int sum = 0;
  for (int i = 0; i < part; ++i) sum += counts[i];
  return sum;
}

// Lists the indices of the piece at `first` that are the block's own. Returns the length of the
// list, the same in all threads, which have synchronised after it.
template <class T>
__device__ int list_own(List<T>& list, const Owners& owners, std::int64_t block, Indices indices,
                        std::int64_t first, std::int64_t n, std::int64_t extent, const T* singles,
                        IndexRecord* record) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  int* counts = list.counts[first / kPiece % 2];
  std::int64_t rows[kPerThread];
  unsigned votes[kPerThread];
  for (int k = 0; k < kPerThread; ++k) {
    const std::int64_t i = first + k * kThreads + thread;
    rows[k] = i < n ? indices[i] : -1;
    const bool is_row = is_inside(rows[k], extent);
    if (!is_row && i < n && record) atomicMin(&record->word, IndexRecord::packed(i, rows[k]));
    votes[k] = __ballot_sync(kAllLanes, is_row && owners.has(rows[k], block));
    if (lane == 0) counts[k * kWarps + warp] = __popc(votes[k]);
  }
  __syncthreads();
  const int length = sum_before(counts, kPerThread * kWarps);
  if (length == 0) return 0;
  for (int k = 0; k < kPerThread; ++k) {
    if (!(votes[k] >> lane & 1)) continue;
    const int slot = sum_before(counts, k * kWarps + warp) + __popc(votes[k] & ((1u << lane) - 1));
    list.row[slot] = rows[k];
    list.at[slot] = static_cast<std::uint16_t>(k * kThreads + thread);
    if (singles) list.single[slot] = singles[first + k * kThreads + thread];
  }
  __syncthreads();
  return length;
}

// Applies `count` elements, `step` apart; four are loaded before the first is stored.
template <class T>
__device__ void apply(ScatterOp op, const T* from, T* to, std::int64_t count, std::int64_t step) {
  std::int64_t i = 0;
  for (; i + 3 * step < count; i += 4 * step) {
    T x[4], y[4];
    for (int k = 0; k < 4; ++k) x[k] = from[i + k * step];
    for (int k = 0; k < 4; ++k) y[k] = to[i + k * step];
    for (int k = 0; k < 4; ++k) to[i + k * step] = combined(op, y[k], x[k]);
  }
  for (; i < count; i += step) to[i] = combined(op, to[i], from[i]);
}

template <class T>
__global__ __launch_bounds__(kThreads) void scatter_rows(ScatterOp op, Indices indices,
                                                         const T* __restrict__ updates, T* out,
                                                         std::int64_t extent, std::int64_t inner,
                                                         std::int64_t n, Owners owners,
                                                         IndexRecord* record) {
  __shared__ List<T> list;
  const std::int64_t block = blockIdx.x & ((1u << owners.log2_blocks) - 1),
                     cut = blockIdx.x >> owners.log2_blocks;
  const int width = kThreads >> owners.log2_workers, worker = static_cast<int>(threadIdx.x) / width,
            lane = static_cast<int>(threadIdx.x) % width;
  const std::int64_t column = cut * owners.columns + lane,
                     count = min(inner, (cut + 1) * owners.columns) - column;
  for (std::int64_t first = 0; first < n; first += kPiece) {
    const int length = list_own(list, owners, block, indices, first, n, extent,
                                inner == 1 ? updates : nullptr, blockIdx.x == 0 ? record : nullptr);
    for (int i = 0; i < length; ++i) {
      if (owners.worker_of(list.row[i]) != worker) continue;
      T* to = out + list.row[i] * inner;
      if (inner == 1) apply(op, &list.single[i], to, lane == 0, 1);
      else apply(op, updates + (first + list.at[i]) * inner + column, to + column, count, width);
    }
  }
}

}  // namespace

cudaError_t scatter(cudaStream_t stream, ScatterOp op, DType dtype, const void* indices,
                    bool are_i64, const void* updates, void* out, std::int64_t extent,
                    std::int64_t inner, std::int64_t n, IndexRecord* record) {
  if (n <= 0) return cudaSuccess;
  const Owners owners = Owners::of(extent, inner, n);
  const dim3 grid(static_cast<unsigned>(owners.blocks()));
  return visit_elements(dtype, [&]<class T>(type_tag<T>) {
    return launch(stream, grid, dim3(kThreads), 0, scatter_rows<T>, op, Indices{indices, are_i64},
                  static_cast<const T*>(updates), static_cast<T*>(out), extent, inner, n, owners,
                  record);
  });
}

}  // namespace troupe::cuda
