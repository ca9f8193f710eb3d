// Kernels that move elements without computing: fill, boxes, transpositions, gather, one_hot;
// and range.
//
// An element is a number of its size; runs that lie dense on both sides are seen as fewer, larger
// elements of up to 16 bytes, as far as addresses and extents allow.
#include <utility>

#include <troupe/devices/cuda/kernels/elements.hpp>
#include <troupe/devices/cuda/kernels/grid.hpp>
#include <troupe/devices/cuda/kernels/kernels.hpp>
#include <troupe/devices/cuda/kernels/launch.hpp>

namespace troupe::cuda {
namespace {

// ---- dense runs

// n elements at an address: `head` elements up to a multiple of 16 bytes, then vectors, then the
// rest. Head and rest are fewer than a block's threads.
struct Run {
  std::int64_t n, head, vectors;

  Run(const void* start, std::int64_t elements, int bytes) : n(elements) {
    const std::int64_t ahead = -static_cast<std::int64_t>(address_of(start)) & (kVectorBytes - 1);
    head = std::min(n, ahead / bytes);
    vectors = (n - head) * bytes / kVectorBytes;
  }
  dim3 blocks() const { return blocks_of(vectors); }
};

// Calls each(i) for the elements of a run that are in no vector.
template <class T, class Each>
__device__ void for_edges(const Run& run, Each each) {
  const std::int64_t i = first_thread<std::int64_t>();
  const std::int64_t rest = run.head + run.vectors * (kVectorBytes / std::int64_t{sizeof(T)});
  if (i < run.head) each(i);
  if (i < run.n - rest) each(rest + i);
}

template <class T>
__global__ void fill_run(T value, uint4 vector, T* out, Run run) {
  uint4* vectors = reinterpret_cast<uint4*>(out + run.head);
  for (std::int64_t i = first_thread<std::int64_t>(); i < run.vectors;
       i += all_threads<std::int64_t>())
    vectors[i] = vector;
  for_edges<T>(run, [&](std::int64_t i) { out[i] = value; });
}

template <class T>
__global__ void copy_run(const T* __restrict__ in, T* __restrict__ out, Run run) {
  const uint4* from = reinterpret_cast<const uint4*>(in + run.head);
  uint4* to = reinterpret_cast<uint4*>(out + run.head);
  TROUPE_UNROLL_4
  for (std::int64_t i = first_thread<std::int64_t>(); i < run.vectors;
       i += all_threads<std::int64_t>())
    to[i] = from[i];
  for_edges<T>(run, [&](std::int64_t i) { out[i] = in[i]; });
}

// ---- boxes

// The axes that two boxes share, the last one the innermost of `to`.
struct Axes {
  int rank = 0;
  std::int64_t extent[kMaxRank + 1], from[kMaxRank + 1], to[kMaxRank + 1];

  void add(std::int64_t e, std::int64_t f, std::int64_t t) {
    extent[rank] = e;
    from[rank] = f;
    to[rank++] = t;
  }
  void swap(int a, int b) {
    std::swap(extent[a], extent[b]);
    std::swap(from[a], from[b]);
    std::swap(to[a], to[b]);
  }
  std::int64_t elements() const {
    std::int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= extent[d];
    return n;
  }
  bool are_dense() const { return from[rank - 1] == 1 && to[rank - 1] == 1; }
  // No element of either box lies further from its first, in either direction.
  bool fit_32_bits() const {
    std::int64_t in = 0, out = 0;
    for (int d = 0; d < rank; ++d) {
      if (from[d] < 0 || to[d] < 0) return false;
      in += (extent[d] - 1) * from[d];
      out += (extent[d] - 1) * to[d];
    }
    return fits_32_bits(in) && fits_32_bits(out) && fits_32_bits(elements());
  }
};

// Ordered by the steps in `to`, without axes of one element; neighbours that are one axis on both
// sides are joined. At least one axis stays.
Axes joined_axes(const Box& from, const Box& to, const std::int64_t* extent) {
  Axes all;
  for (int d = 0; d < from.rank; ++d)
    if (extent[d] != 1) all.add(extent[d], from.stride[d], to.stride[d]);
  for (int d = 1; d < all.rank; ++d)
    for (int k = d; k > 0 && all.to[k - 1] < all.to[k]; --k) all.swap(k - 1, k);
  Axes axes;
  for (int d = 0; d < all.rank; ++d) {
    const int last = axes.rank - 1;
    if (last >= 0 && axes.from[last] == all.from[d] * all.extent[d] &&
        axes.to[last] == all.to[d] * all.extent[d]) {
      axes.extent[last] *= all.extent[d];
      axes.from[last] = all.from[d];
      axes.to[last] = all.to[d];
    } else {
      axes.add(all.extent[d], all.from[d], all.to[d]);
    }
  }
  if (axes.rank == 0) axes.add(1, 1, 1);
  return axes;
}

// Makes elements of dense rows larger while all that is counted in them stays whole. Returns their
// bytes.
int widen(Axes& axes, const void* in, const void* out, int bytes) {
  if (!axes.are_dense()) return bytes;
  const int last = axes.rank - 1;
  const auto can_double = [&] {
    const std::size_t twice = static_cast<std::size_t>(bytes) * 2;
    if (bytes == kVectorBytes || !is_aligned(in, twice) || !is_aligned(out, twice)) return false;
    bool is_even = axes.extent[last] % 2 == 0;
    for (int d = 0; d < last; ++d) is_even &= axes.from[d] % 2 == 0 && axes.to[d] % 2 == 0;
    return is_even;
  };
  for (; can_double(); bytes *= 2) {
    axes.extent[last] /= 2;
    for (int d = 0; d < last; ++d) axes.from[d] /= 2, axes.to[d] /= 2;
  }
  return bytes;
}

// The axes as a kernel walks them: from a number to two offsets.
template <class Index>
struct Walk {
  int rank = 0;
  Divisor<Index> extent[kMaxRank];
  Index from[kMaxRank] = {}, to[kMaxRank] = {};

  explicit Walk(const Axes& axes) {
    for (int d = 0; d < axes.rank; ++d) add(axes, d);
  }
  Walk() = default;
  void add(const Axes& axes, int d) {
    extent[rank] = Divisor<Index>(axes.extent[d]);
    from[rank] = static_cast<Index>(axes.from[d]);
    to[rank++] = static_cast<Index>(axes.to[d]);
  }
  __device__ void locate(Index i, Index& in, Index& out) const {
    in = out = 0;
    for (int d = rank - 1; d >= 0; --d) {
      const Index next = d > 0 ? extent[d].quotient(i) : 0, at = i - next * extent[d].divisor;
      in += at * from[d];
      out += at * to[d];
      i = next;
    }
  }
};

// Unsigned 64-bit offsets wrap where a step is negative.
template <class T, class Index>
__device__ T* moved(T* pointer, Index by) {
  if constexpr (sizeof(Index) == 8) return pointer + static_cast<std::int64_t>(by);
  else return pointer + by;
}

template <class T, class Index>
__global__ void copy_walked(const T* __restrict__ in, T* __restrict__ out, Walk<Index> walk,
                            Index n) {
  for (Index i = first_thread<Index>(); i < n; i += all_threads<Index>()) {
    Index from, to;
    walk.locate(i, from, to);
    *moved(out, to) = *moved(in, from);
  }
}

// ---- transpositions

constexpr int kTile = 32;

// Matrices whose columns are dense in `in` and whose rows are dense in `out`, one for each position
// of `others`.
template <class Index>
struct Matrices {
  Walk<Index> others;
  Index rows, columns;
  Divisor<Index> row_tiles, column_tiles;
  Index in_step;   // from row to row in `in`
  Index out_step;  // from column to column in `out`
};

// A tile is read along its columns and written along its rows; it is a column wider, so that
// neither way meets a bank of shared memory twice.
template <class T, class Index>
__global__ __launch_bounds__(kThreads) void transpose(const T* __restrict__ in, T* __restrict__ out,
                                                      Matrices<Index> m, Index tiles) {
  __shared__ T tile[kTile][kTile + 1];
  const Index x = threadIdx.x % kTile, y = threadIdx.x / kTile, step = kThreads / kTile;
  for (Index i = blockIdx.x; i < tiles; i += gridDim.x) {
    const Index line = m.column_tiles.quotient(i), matrix = m.row_tiles.quotient(line);
    const Index column = (i - line * m.column_tiles.divisor) * kTile;
    const Index row = (line - matrix * m.row_tiles.divisor) * kTile;
    Index from, to;
    m.others.locate(matrix, from, to);
    for (Index r = y; r < kTile; r += step)
      if (row + r < m.rows && column + x < m.columns)
        tile[r][x] = *moved(in, from + (row + r) * m.in_step + column + x);
    __syncthreads();
    for (Index c = y; c < kTile; c += step)
      if (row + x < m.rows && column + c < m.columns)
        *moved(out, to + (column + c) * m.out_step + row + x) = tile[x][c];
    __syncthreads();
  }
}

// Returns the axis that is dense in `in`, if another is dense in `out` and both are long enough for
// tiles; -1: none.
int dense_elsewhere(const Axes& axes) {
  constexpr std::int64_t kLong = 8;
  const int last = axes.rank - 1;
  if (axes.to[last] != 1 || axes.from[last] == 1 || axes.extent[last] < kLong) return -1;
  for (int d = 0; d < last; ++d)
    if (axes.from[d] == 1 && axes.extent[d] >= kLong) return d;
  return -1;
}

template <class Index>
cudaError_t copy_tiles(cudaStream_t stream, int bytes, const void* in, void* out, const Axes& axes,
                       int dense) {
  const int last = axes.rank - 1;
  const std::int64_t rows = axes.extent[last], columns = axes.extent[dense],
                     row_tiles = ceil_div(rows, kTile), column_tiles = ceil_div(columns, kTile),
                     count = axes.elements() / rows / columns;
  Matrices<Index> m{.others = {},
                    .rows = static_cast<Index>(rows),
                    .columns = static_cast<Index>(columns),
                    .row_tiles = Divisor<Index>(row_tiles),
                    .column_tiles = Divisor<Index>(column_tiles),
                    .in_step = static_cast<Index>(axes.from[last]),
                    .out_step = static_cast<Index>(axes.to[dense])};
  for (int d = 0; d < last; ++d)
    if (d != dense) m.others.add(axes, d);
  const std::int64_t tiles = count * row_tiles * column_tiles;
  return visit_bytes(bytes, [&]<class T>(type_tag<T>) {
    return launch(stream, blocks_of(tiles, 1), dim3(kThreads), 0, transpose<T, Index>,
                  static_cast<const T*>(in), static_cast<T*>(out), m, static_cast<Index>(tiles));
  });
}

template <class Index>
cudaError_t copy_axes(cudaStream_t stream, int bytes, const void* in, void* out, const Axes& axes) {
  const std::int64_t n = axes.elements();
  return visit_bytes(bytes, [&]<class T>(type_tag<T>) {
    return launch(stream, blocks_of(n), dim3(kThreads), 0, copy_walked<T, Index>,
                  static_cast<const T*>(in), static_cast<T*>(out), Walk<Index>(axes),
                  static_cast<Index>(n));
  });
}

cudaError_t copy_dense(cudaStream_t stream, int bytes, const void* in, void* out, std::int64_t n) {
  return visit_bytes(bytes, [&]<class T>(type_tag<T>) {
    const Run run(out, n, bytes);
    return launch(stream, run.blocks(), dim3(kThreads), 0, copy_run<T>, static_cast<const T*>(in),
                  static_cast<T*>(out), run);
  });
}

// ---- gather, one_hot, range

template <class T, class Index>
__global__ void gather_rows(const T* __restrict__ params, Indices indices, T* __restrict__ out,
                            std::int64_t extent, Divisor<Index> inner, Divisor<Index> n,
                            Index elements, IndexRecord* record) {
  for (Index i = first_thread<Index>(); i < elements; i += all_threads<Index>()) {
    const Index row = inner.quotient(i), column = i - row * inner.divisor;
    const Index outer = n.quotient(row), position = row - outer * n.divisor;
    const std::int64_t index = indices[position];
    if (is_inside(index, extent))
      out[i] = params[(static_cast<std::int64_t>(outer) * extent + index) *
                          static_cast<std::int64_t>(inner.divisor) +
                      static_cast<std::int64_t>(column)];
    else if (outer == 0 && column == 0)
      atomicMin(&record->word, IndexRecord::packed(static_cast<std::int64_t>(position), index));
  }
}

__global__ void check_indices(Indices indices, std::int64_t n, std::int64_t extent,
                              IndexRecord* record) {
  for (std::int64_t i = first_thread<std::int64_t>(); i < n; i += all_threads<std::int64_t>())
    if (!is_inside(indices[i], extent))
      atomicMin(&record->word, IndexRecord::packed(i, indices[i]));
}

template <class Index>
cudaError_t gather_as(cudaStream_t stream, int bytes, const void* params, Indices indices,
                      void* out, std::int64_t outer, std::int64_t extent, std::int64_t inner,
                      std::int64_t n, IndexRecord* record) {
  const std::int64_t elements = outer * n * inner;
  return visit_bytes(bytes, [&]<class T>(type_tag<T>) {
    return launch(stream, blocks_of(elements), dim3(kThreads), 0, gather_rows<T, Index>,
                  static_cast<const T*>(params), indices, static_cast<T*>(out), extent,
                  Divisor<Index>(inner), Divisor<Index>(n), static_cast<Index>(elements), record);
  });
}

template <class T, class Index>
__global__ void write_one_hot(Indices indices, T on, T off, T* __restrict__ out,
                              Divisor<Index> depth, Divisor<Index> inner, Index n) {
  for (Index i = first_thread<Index>(); i < n; i += all_threads<Index>()) {
    const Index line = inner.quotient(i), column = i - line * inner.divisor;
    const Index outer = depth.quotient(line), at = line - outer * depth.divisor;
    const std::int64_t index = indices[static_cast<std::int64_t>(outer * inner.divisor + column)];
    out[i] = index == static_cast<std::int64_t>(at) ? on : off;
  }
}

template <class Index>
cudaError_t one_hot_as(cudaStream_t stream, int bytes, Indices indices, const Element& on,
                       const Element& off, void* out, std::int64_t depth, std::int64_t inner,
                       std::int64_t n) {
  return visit_bytes(bytes, [&]<class T>(type_tag<T>) {
    T set, unset;
    memcpy(&set, on.bytes, sizeof set);
    memcpy(&unset, off.bytes, sizeof unset);
    return launch(stream, blocks_of(n), dim3(kThreads), 0, write_one_hot<T, Index>, indices, set,
                  unset, static_cast<T*>(out), Divisor<Index>(depth), Divisor<Index>(inner),
                  static_cast<Index>(n));
  });
}

// As the bits of an integer of either sign.
std::uint64_t wrapped(double whole) {
  return whole < 0 ? static_cast<std::uint64_t>(static_cast<std::int64_t>(whole))
                   : static_cast<std::uint64_t>(whole);
}

template <class T>
__global__ void write_range(double start, double step, T* __restrict__ out, std::int64_t n) {
  for (std::int64_t i = first_thread<std::int64_t>(); i < n; i += all_threads<std::int64_t>()) {
    // Two roundings, as the CPU device's, where nvcc would contract to one.
    const double exact = __dadd_rn(start, __dmul_rn(static_cast<double>(i), step));
    if constexpr (std::is_same_v<T, bool>) out[i] = exact != 0;
    else out[i] = narrowed<T>(exact);
  }
}
template <class T>
__global__ void write_whole_range(std::uint64_t start, std::uint64_t step, T* __restrict__ out,
                                  std::int64_t n) {
  for (std::int64_t i = first_thread<std::int64_t>(); i < n; i += all_threads<std::int64_t>())
    out[i] = static_cast<T>(start + static_cast<std::uint64_t>(i) * step);
}

}  // namespace

cudaError_t fill(cudaStream_t stream, const Element& value, int element_bytes, void* out,
                 std::int64_t n) {
  if (n <= 0) return cudaSuccess;
  return visit_bytes(element_bytes, [&]<class T>(type_tag<T>) {
    T one;
    uint4 vector;
    memcpy(&one, value.bytes, sizeof one);
    for (std::size_t at = 0; at < sizeof vector; at += sizeof one)
      memcpy(reinterpret_cast<unsigned char*>(&vector) + at, value.bytes, sizeof one);
    const Run run(out, n, element_bytes);
    return launch(stream, run.blocks(), dim3(kThreads), 0, fill_run<T>, one, vector,
                  static_cast<T*>(out), run);
  });
}

cudaError_t copy_box(cudaStream_t stream, int element_bytes, const void* in, const Box& from,
                     void* out, const Box& to, const std::int64_t* extent) {
  Axes axes = joined_axes(from, to, extent);
  if (axes.elements() == 0) return cudaSuccess;
  const char* source = static_cast<const char*>(in) + from.first * element_bytes;
  char* target = static_cast<char*>(out) + to.first * element_bytes;
  const bool is_in_phase = (address_of(source) - address_of(target)) % kVectorBytes == 0;
  if (axes.rank == 1 && axes.are_dense() && is_in_phase)
    return copy_dense(stream, element_bytes, source, target, axes.elements());
  if (const int dense = dense_elsewhere(axes); dense >= 0)
    return axes.fit_32_bits()
               ? copy_tiles<std::uint32_t>(stream, element_bytes, source, target, axes, dense)
               : copy_tiles<std::uint64_t>(stream, element_bytes, source, target, axes, dense);
  const int bytes = widen(axes, source, target, element_bytes);
  return axes.fit_32_bits() ? copy_axes<std::uint32_t>(stream, bytes, source, target, axes)
                            : copy_axes<std::uint64_t>(stream, bytes, source, target, axes);
}

cudaError_t transpose_tiles(cudaStream_t stream, int element_bytes, const void* in, void* out,
                            std::int64_t outer, std::int64_t rows, std::int64_t columns) {
  const std::int64_t extent[] = {outer, columns, rows};
  const Box from{.rank = 3, .first = 0, .stride = {rows * columns, 1, columns}};
  const Box to{.rank = 3, .first = 0, .stride = {rows * columns, rows, 1}};
  return copy_box(stream, element_bytes, in, from, out, to, extent);
}

cudaError_t gather(cudaStream_t stream, int element_bytes, const void* params, const void* indices,
                   bool are_i64, void* out, std::int64_t outer, std::int64_t extent,
                   std::int64_t inner, std::int64_t n, IndexRecord* record) {
  if (n <= 0) return cudaSuccess;
  const Indices at{indices, are_i64};
  if (outer * inner == 0)
    return launch(stream, blocks_of(n), dim3(kThreads), 0, check_indices, at, n, extent, record);
  int bytes = element_bytes;
  const auto can_double = [&] {
    const std::size_t twice = static_cast<std::size_t>(bytes) * 2;
    return bytes < kVectorBytes && inner % 2 == 0 && is_aligned(params, twice) &&
           is_aligned(out, twice);
  };
  for (; can_double(); bytes *= 2) inner /= 2;
  return fits_32_bits(outer * n * inner)
             ? gather_as<std::uint32_t>(stream, bytes, params, at, out, outer, extent, inner, n,
                                        record)
             : gather_as<std::uint64_t>(stream, bytes, params, at, out, outer, extent, inner, n,
                                        record);
}

cudaError_t one_hot(cudaStream_t stream, int element_bytes, const void* indices, bool are_i64,
                    const Element& on, const Element& off, void* out, std::int64_t outer,
                    std::int64_t depth, std::int64_t inner) {
  const std::int64_t n = outer * depth * inner;
  if (n == 0) return cudaSuccess;
  const Indices at{indices, are_i64};
  return fits_32_bits(n)
             ? one_hot_as<std::uint32_t>(stream, element_bytes, at, on, off, out, depth, inner, n)
             : one_hot_as<std::uint64_t>(stream, element_bytes, at, on, off, out, depth, inner, n);
}

cudaError_t range(cudaStream_t stream, double start, double step, DType dtype, void* out,
                  std::int64_t n) {
  if (n <= 0) return cudaSuccess;
  return visit_elements(dtype, [&]<class T>(type_tag<T>) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      return launch(stream, blocks_of(n), dim3(kThreads), 0, write_whole_range<T>, wrapped(start),
                    wrapped(step), static_cast<T*>(out), n);
    else
      return launch(stream, blocks_of(n), dim3(kThreads), 0, write_range<T>, start, step,
                    static_cast<T*>(out), n);
  });
}

}  // namespace troupe::cuda
