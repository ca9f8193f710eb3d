// The kernels of reductions of [outer, reduced, inner] over the middle axis, and how they are
// launched.
//
//   return run_reduction<Sum<float>>(request);
//
// Every accumulator is made by a tree that the extents alone shape:
// - rows (inner is 1): a group of 1 to 32 lanes, or a block, a row. A lane takes every n-th pack of
//   16 bytes, element by element; lanes merge by halves.
// - columns (inner above 1): a lane takes every n-th row of 1 to 4 neighbouring columns, wherever
//   the next column lies, so that a warp reads dense memory. The lanes of a column merge by halves
//   through shared memory.
// - few results: the reduced elements are cut into chunks, a block or more for each; their
//   accumulators go through `scratch` as [results, chunks] and are merged as rows are.
// Whether addresses are aligned decides how packs are loaded, not where an element goes.
#pragma once

#include <troupe/devices/cuda/kernels/grid.hpp>
#include <troupe/devices/cuda/kernels/kernels.hpp>
#include <troupe/devices/cuda/kernels/launch.hpp>
#include <troupe/devices/cuda/kernels/reductions.hpp>

namespace troupe::cuda {

// ---- lanes

template <class T>
__device__ T shuffled_down(T value, unsigned by) {
  using Word = std::conditional_t<sizeof(T) % 8 == 0, unsigned long long, unsigned>;
  constexpr int kWords = (sizeof(T) + sizeof(Word) - 1) / sizeof(Word);
  Word words[kWords] = {};
  memcpy(words, &value, sizeof value);
  for (int i = 0; i < kWords; ++i) words[i] = __shfl_down_sync(kAllLanes, words[i], by);
  memcpy(&value, words, sizeof value);
  return value;
}

// The first lane of each group of `lanes` gets the merged accumulator; the others get anything.
template <class Op>
__device__ void merge_lanes(typename Op::Acc& acc, int lanes, const How& how) {
  for (int by = (lanes < kWarp ? lanes : kWarp) / 2; by > 0; by /= 2)
    Op::merge(acc, shuffled_down(acc, static_cast<unsigned>(by)), how);
  if (lanes <= kWarp) return;
  constexpr int kWarps = kThreads / kWarp;
  __shared__ typename Op::Acc of_warps[kWarps];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread % kWarp == 0) of_warps[thread / kWarp] = acc;
  __syncthreads();
  if (thread < kWarp) {
    acc = thread < kWarps ? of_warps[thread] : Op::start(how);
    for (int by = kWarps / 2; by > 0; by /= 2)
      Op::merge(acc, shuffled_down(acc, static_cast<unsigned>(by)), how);
  }
  __syncthreads();
}

template <class T, int kElements>
struct alignas(kElements * sizeof(T)) Pack {
  T at[kElements];
};

// Elements that are loaded together: 16 bytes, but not more than are worth their code.
template <class Op>
constexpr int kPackElements =
    std::min(static_cast<int>(std::max<std::size_t>(1, kVectorBytes / sizeof(typename Op::In))),
             Op::kMostTogether);

// Loads a pack, in one piece where it is aligned.
template <class T, int kElements>
__device__ Pack<T, kElements> pack_at(const T* x, bool is_aligned) {
  if constexpr (kElements > 1)
    if (is_aligned) return *reinterpret_cast<const Pack<T, kElements>*>(x);
  Pack<T, kElements> pack;
  for (int i = 0; i < kElements; ++i) pack.at[i] = x[i];
  return pack;
}

// ---- rows

struct Rows {
  std::int64_t rows, n;        // elements of a row
  std::int64_t chunks, packs;  // chunks of a row, packs of a chunk
  int lanes;                   // lanes a chunk
  bool is_aligned;             // so is each pack
};

template <class Op>
__global__ __launch_bounds__(kThreads) void reduce_rows(const typename Op::In* __restrict__ in,
                                                        typename Op::Out* __restrict__ out,
                                                        typename Op::Acc* __restrict__ partial,
                                                        Rows r, How how) {
  using T = typename Op::In;
  constexpr int kPack = kPackElements<Op>;
  const int groups = kThreads / r.lanes, group = static_cast<int>(threadIdx.x) / r.lanes,
            lane = static_cast<int>(threadIdx.x) % r.lanes;
  const std::int64_t items = r.rows * r.chunks;
  for (std::int64_t first = std::int64_t{blockIdx.x} * groups; first < items;
       first += std::int64_t{gridDim.x} * groups) {
    const std::int64_t item = first + group, row = r.chunks == 1 ? item : item / r.chunks;
    typename Op::Acc acc = Op::start(how);
    if (item < items) {
      const T* x = in + row * r.n;
      const std::int64_t begin = (item - row * r.chunks) * r.packs,
                         whole = r.n / kPack - begin;  // packs from here to the row's end
      const std::int64_t end = whole < r.packs ? whole : r.packs;
      for (std::int64_t p = lane; p < end; p += r.lanes) {
        const std::int64_t at = (begin + p) * kPack;
        const Pack<T, kPack> pack = pack_at<T, kPack>(x + at, r.is_aligned);
        for (int i = 0; i < kPack; ++i) Op::add(acc, pack.at[i], at + i, how);
      }
      if (whole < r.packs && lane == (whole % r.lanes))
        for (std::int64_t i = (begin + whole) * kPack; i < r.n; ++i) Op::add(acc, x[i], i, how);
    }
    merge_lanes<Op>(acc, r.lanes, how);
    if (lane > 0 || item >= items) continue;
    if (partial) partial[item] = acc;
    else out[row] = Op::finish(acc, how);
  }
}

// ---- columns

struct Columns {
  std::int64_t results, reduced, inner;
  std::int64_t chunks, rows;  // rows of a chunk
  int lanes;                  // lanes a column
  bool is_aligned;            // so are `kColumns` neighbours
};

template <class Op, int kColumns>
__global__ __launch_bounds__(kThreads) void reduce_columns(const typename Op::In* __restrict__ in,
                                                           typename Op::Out* __restrict__ out,
                                                           typename Op::Acc* __restrict__ partial,
                                                           Columns c, How how) {
  using T = typename Op::In;
  __shared__ typename Op::Acc of_threads[kThreads];
  const int width = kThreads / c.lanes, thread = static_cast<int>(threadIdx.x),
            lane = thread / width;
  const std::int64_t tiles = ceil_div(c.results, width * kColumns);
  for (std::int64_t item = blockIdx.x; item < tiles * c.chunks; item += gridDim.x) {
    const std::int64_t tile = item / c.chunks, chunk = item - tile * c.chunks,
                       result = (tile * width + thread % width) * kColumns;
    typename Op::Acc acc[kColumns];
    for (int k = 0; k < kColumns; ++k) acc[k] = Op::start(how);
    if (result < c.results) {
      const std::int64_t outer = result / c.inner, last = (chunk + 1) * c.rows,
                         end = last < c.reduced ? last : c.reduced;
      const T* x = in + outer * c.reduced * c.inner + (result - outer * c.inner);
      TROUPE_UNROLL_4
      for (std::int64_t r = chunk * c.rows + lane; r < end; r += c.lanes) {
        const Pack<T, kColumns> pack = pack_at<T, kColumns>(x + r * c.inner, c.is_aligned);
        for (int k = 0; k < kColumns; ++k) Op::add(acc[k], pack.at[k], r, how);
      }
    }
    for (int k = 0; k < kColumns; ++k) {
      for (int half = c.lanes / 2; half > 0; half /= 2) {
        of_threads[thread] = acc[k];
        __syncthreads();
        if (lane < half) Op::merge(acc[k], of_threads[thread + half * width], how);
        __syncthreads();
      }
      if (lane > 0 || result >= c.results) continue;
      if (partial) partial[(result + k) * c.chunks + chunk] = acc[k];
      else out[result + k] = Op::finish(acc[k], how);
    }
  }
}

// ---- how the extents are cut

// Packs, or rows of columns, that a lane takes at least where work is cut.
constexpr std::int64_t kLeastWork = kEnoughBlocks < 100 ? 2 : 8;
constexpr std::int64_t kLongRow = kEnoughBlocks < 100 ? 40 : 128;  // packs; a block for it

struct Cut {
  int lanes = 1;
  std::int64_t chunks = 1, a_chunk = 0;  // packs or rows
};

// Chunks of n packs or rows of `least` at least, so many that there are enough blocks.
inline void cut(Cut& c, std::int64_t n, std::int64_t blocks, std::int64_t least) {
  const std::int64_t wanted =
      std::min(kEnoughBlocks / std::max<std::int64_t>(1, blocks), n / least);
  c.a_chunk = wanted > 1 ? ceil_div(n, wanted) : n;
  c.chunks = n ? ceil_div(n, c.a_chunk) : 1;
}

inline Cut cut_rows(std::int64_t rows, std::int64_t n, int pack) {
  Cut c;
  const std::int64_t packs = ceil_div(n, pack);
  c.lanes = packs > kLongRow ? kThreads
                             : static_cast<int>(power_of_two(std::min<std::int64_t>(packs, kWarp)));
  cut(c, packs, c.lanes == kThreads ? rows : kEnoughBlocks, c.lanes * kLeastWork);
  return c;
}

inline Cut cut_columns(std::int64_t results, std::int64_t reduced) {
  Cut c;
  const std::int64_t width = power_of_two(std::min<std::int64_t>(results, kWarp));
  while (c.lanes * 2 * width <= kThreads && c.lanes * 2 * kLeastWork <= reduced) c.lanes *= 2;
  cut(c, reduced, ceil_div(results, kThreads / c.lanes), c.lanes * kLeastWork);
  return c;
}

// Neighbouring columns that a lane takes.
template <class T>
constexpr int kMostColumns = sizeof(T) >= 8   ? 1
                             : sizeof(T) == 4 ? 2
                                              : 4;

struct Extents {
  std::int64_t outer, reduced, inner;

  // One element is reduced as rows are, and none.
  Extents(std::int64_t o, std::int64_t r, std::int64_t i) : outer(o), reduced(r), inner(i) {
    if (reduced <= 1) outer *= inner, inner = 1;
  }
  std::int64_t results() const { return outer * inner; }
  template <class Op>
  Cut cut() const {
    return inner == 1 ? cut_rows(outer, reduced, kPackElements<Op>)
                      : cut_columns(results(), reduced);
  }
};

// ---- launches

template <class Op>
cudaError_t launch_rows(cudaStream_t stream, const typename Op::In* in, typename Op::Out* out,
                        typename Op::Acc* partial, std::int64_t rows, std::int64_t n, const Cut& c,
                        const How& how) {
  using T = typename Op::In;
  constexpr int kPack = kPackElements<Op>;
  const Rows r{.rows = rows,
               .n = n,
               .chunks = c.chunks,
               .packs = c.a_chunk,
               .lanes = c.lanes,
               .is_aligned = is_aligned(in, kPack * sizeof(T)) && (rows == 1 || n % kPack == 0)};
  return launch(stream, blocks_of(rows * c.chunks, kThreads / c.lanes), dim3(kThreads), 0,
                reduce_rows<Op>, in, out, partial, r, how);
}

template <class Op, int kColumns>
cudaError_t launch_columns(cudaStream_t stream, const typename Op::In* in, typename Op::Out* out,
                           typename Op::Acc* partial, const Extents& e, const Cut& c,
                           const How& how) {
  const Columns columns{.results = e.results(),
                        .reduced = e.reduced,
                        .inner = e.inner,
                        .chunks = c.chunks,
                        .rows = c.a_chunk,
                        .lanes = c.lanes,
                        .is_aligned = is_aligned(in, kColumns * sizeof(typename Op::In))};
  const std::int64_t tiles = ceil_div(e.results(), kThreads / c.lanes * kColumns);
  return launch(stream, blocks_of(tiles * c.chunks, 1), dim3(kThreads), 0,
                reduce_columns<Op, kColumns>, in, out, partial, columns, how);
}

/// A request for a reduction. If `scratch_bytes` is set, no kernel is launched: the size of the
/// required scratch memory is stored there.
struct Request {
  cudaStream_t stream;
  ReduceOp op;
  DType dtype;
  const void* in;
  void* out;
  Extents extents;
  void* scratch;
  std::size_t* scratch_bytes;
  How how;
};

/// min, max, argmin, argmax, logsumexp; not of booleans.
cudaError_t reduce_ordered(const Request& request);

template <class Op>
cudaError_t run_reduction(const Request& request) {
  using Acc = typename Op::Acc;
  using Merging = typename Op::Merging;
  const Extents& e = request.extents;
  const How& how = request.how;
  const Cut c = e.template cut<Op>();
  if (request.scratch_bytes) {
    *request.scratch_bytes =
        c.chunks > 1 ? static_cast<std::size_t>(e.results() * c.chunks) * sizeof(Acc) : 0;
    return cudaSuccess;
  }
  const auto* from = static_cast<const typename Op::In*>(request.in);
  auto* to = static_cast<typename Op::Out*>(request.out);
  Acc* partial = c.chunks > 1 ? static_cast<Acc*>(request.scratch) : nullptr;
  constexpr int kColumns = kMostColumns<typename Op::In>;
  const bool are_wide = e.inner % kColumns == 0 && e.results() >= kWarp * kColumns;
  const cudaError_t first =
      e.inner == 1 ? launch_rows<Op>(request.stream, from, to, partial, e.outer, e.reduced, c, how)
      : are_wide   ? launch_columns<Op, kColumns>(request.stream, from, to, partial, e, c, how)
                   : launch_columns<Op, 1>(request.stream, from, to, partial, e, c, how);
  if (first != cudaSuccess || !partial) return first;
  Cut merging = cut_rows(e.results(), c.chunks, kPackElements<Merging>);
  merging.a_chunk = ceil_div(c.chunks, kPackElements<Merging>);
  merging.chunks = 1;
  return launch_rows<Merging>(request.stream,
                              reinterpret_cast<const typename Merging::In*>(partial), to, nullptr,
                              e.results(), c.chunks, merging, how);
}

}  // namespace troupe::cuda
