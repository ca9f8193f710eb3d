// Sorting of rows, stable: tiles are sorted by a bitonic network (Batcher, 1968) in shared memory,
// with the position as the second key, and then merged in pairs. In a merge each element finds its
// place by a binary search in the other run, so that no thread waits for another.
#include <utility>

#include <troupe/devices/cuda/kernels/axes.hpp>
#include <troupe/devices/cuda/kernels/elements.hpp>
#include <troupe/devices/cuda/kernels/grid.hpp>
#include <troupe/devices/cuda/kernels/launch.hpp>

namespace troupe::cuda {
namespace {

// Small on the CPU, so that small tests merge.
constexpr std::int64_t kSortTile = kEnoughBlocks < 100 ? 32 : 1024;

template <class T>
__device__ bool is_below(T x, T y) {
  const auto a = wide(x), b = wide(y);
  if constexpr (std::is_floating_point_v<decltype(wide(x))>) return a < b || (b != b && a == a);
  else return a < b;
}

// The keys of rows, and where they were in them.
template <class T>
struct Keys {
  T* value;
  std::int32_t* place;
};

template <class T>
struct Order {
  bool is_descending;
  __device__ bool is_before(T x, T y) const {
    return is_descending ? is_below(y, x) : is_below(x, y);
  }
};

// Sorts tile number `item` of the rows. Places behind the row's end come last: they are -1.
template <class T>
__global__ __launch_bounds__(kThreads) void sort_tiles(const T* __restrict__ x, Keys<T> to,
                                                       std::int64_t rows, std::int64_t extent,
                                                       std::int64_t tiles, Order<T> order) {
  __shared__ T value[kSortTile];
  __shared__ std::int32_t place[kSortTile];
  const auto is_after = [&](int a, int b) {
    if (place[a] < 0 || place[b] < 0) return place[a] < 0 && place[b] >= 0;
    if (order.is_before(value[b], value[a])) return true;
    return !order.is_before(value[a], value[b]) && place[a] > place[b];
  };
  for (std::int64_t item = blockIdx.x; item < rows * tiles; item += gridDim.x) {
    const std::int64_t row = item / tiles, first = (item - row * tiles) * kSortTile;
    for (int i = static_cast<int>(threadIdx.x); i < kSortTile; i += kThreads) {
      const bool is_there = first + i < extent;
      place[i] = is_there ? static_cast<std::int32_t>(first + i) : -1;
      value[i] = is_there ? x[row * extent + first + i] : T{};
    }
    __syncthreads();
    for (int size = 2; size <= kSortTile; size *= 2)
      for (int by = size / 2; by > 0; by /= 2) {
        for (int k = static_cast<int>(threadIdx.x); k < kSortTile / 2; k += kThreads) {
          const int a = 2 * by * (k / by) + k % by, b = a + by;
          const bool rises = (a & size) == 0;
          if (rises ? is_after(a, b) : is_after(b, a)) {
            const T v = value[a];
            value[a] = value[b];
            value[b] = v;
            const std::int32_t p = place[a];
            place[a] = place[b];
            place[b] = p;
          }
        }
        __syncthreads();
      }
    for (int i = static_cast<int>(threadIdx.x); i < kSortTile && first + i < extent;
         i += kThreads) {
      to.value[row * extent + first + i] = value[i];
      to.place[row * extent + first + i] = place[i];
    }
    __syncthreads();
  }
}

// Merges runs of `run` elements in pairs. Equals of the first run stay first.
template <class T>
__global__ __launch_bounds__(kThreads) void merge_runs(Keys<T> from, Keys<T> to, std::int64_t all,
                                                       std::int64_t extent, std::int64_t run,
                                                       Order<T> order) {
  for (std::int64_t i = first_thread<std::int64_t>(); i < all; i += all_threads<std::int64_t>()) {
    const std::int64_t row = i / extent, at = i - row * extent, pair = at / (2 * run) * 2 * run,
                       middle = min(pair + run, extent), end = min(pair + 2 * run, extent);
    const bool is_first = at < middle;
    const T mine = from.value[i];
    const T* other = from.value + row * extent;
    std::int64_t low = is_first ? middle : pair, high = is_first ? end : middle;
    const std::int64_t start = low;
    while (low < high) {
      const std::int64_t half = low + (high - low) / 2;
      const bool is_ahead =
          is_first ? order.is_before(other[half], mine) : !order.is_before(mine, other[half]);
      if (is_ahead) low = half + 1;
      else high = half;
    }
    const std::int64_t own = at - (is_first ? pair : middle),
                       place = row * extent + pair + own + (low - start);
    to.value[place] = mine;
    to.place[place] = from.place[i];
  }
}

template <class T>
__global__ __launch_bounds__(kThreads) void take_first(Keys<T> from, T* __restrict__ values,
                                                       std::int64_t* __restrict__ indices,
                                                       std::int64_t all, std::int64_t extent,
                                                       std::int64_t count) {
  for (std::int64_t i = first_thread<std::int64_t>(); i < all; i += all_threads<std::int64_t>()) {
    const std::int64_t at = i / count * extent + i % count;
    values[i] = from.value[at];
    indices[i] = from.place[at];
  }
}

}  // namespace

std::size_t sort_scratch(DType dtype, std::int64_t rows, std::int64_t extent) {
  const std::size_t each = 16 + sizeof(std::int32_t);
  (void)dtype;
  return 2 * static_cast<std::size_t>(rows * extent) * each;
}

cudaError_t sort(cudaStream_t stream, DType dtype, const void* x, void* values,
                 std::int64_t* indices, std::int64_t rows, std::int64_t extent, std::int64_t count,
                 bool is_descending, void* scratch) {
  if (rows * count == 0) return cudaSuccess;
  return visit_elements(dtype, [&]<class T>(type_tag<T>) -> cudaError_t {
    if constexpr (is_complex_type<T> || std::is_same_v<T, bool>) return cudaErrorInvalidValue;
    else {
      const std::int64_t all = rows * extent, tiles = ceil_div(extent, kSortTile);
      auto* places = reinterpret_cast<std::int32_t*>(static_cast<std::byte*>(scratch) + 32 * all);
      Keys<T> from{static_cast<T*>(scratch), places},
          to{static_cast<T*>(scratch) + all, places + all};
      const Order<T> order{is_descending};
      cudaError_t error =
          launch(stream, blocks_of(rows * tiles, 1), dim3(kThreads), 0, sort_tiles<T>,
                 static_cast<const T*>(x), from, rows, extent, tiles, order);
      for (std::int64_t run = kSortTile; run < extent && error == cudaSuccess; run *= 2) {
        error = launch(stream, blocks_of(all), dim3(kThreads), 0, merge_runs<T>, from, to, all,
                       extent, run, order);
        std::swap(from, to);
      }
      if (error != cudaSuccess) return error;
      return launch(stream, blocks_of(rows * count), dim3(kThreads), 0, take_first<T>, from,
                    static_cast<T*>(values), indices, rows * count, extent, count);
    }
  });
}

}  // namespace troupe::cuda
