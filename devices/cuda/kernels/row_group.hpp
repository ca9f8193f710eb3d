// Threads that compute one row together: 1 to 32 lanes of a warp, or a block. Every thread of a
// block takes part in each merge, also without a row.
//
//   for (RowWalk w(shape); w.is_inside(); w.next()) {
//     for (std::int64_t i = w.lane; w.has_row() && i < shape.n; i += shape.lanes) ...
//     sum = merged_in_group(sum, shape.lanes, [](double a, double b) { return a + b; });
//   }
#pragma once

#include <troupe/devices/cuda/kernels/elements.hpp>
#include <troupe/devices/cuda/kernels/grid.hpp>

namespace troupe::cuda {

/// f16, bf16 and f32 are computed in float, f64 in double.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Elements from which a row has a block of its own.
constexpr std::int64_t kBlockRow = kEnoughBlocks < 100 ? 40 : 1024;

struct RowShape {
  std::int64_t rows, n;
  int lanes;

  RowShape(std::int64_t r, std::int64_t elements)
      : rows(r), n(elements),
        lanes(n > kBlockRow ? kThreads
                            : static_cast<int>(power_of_two(
                                  std::max<std::int64_t>(1, std::min<std::int64_t>(n, kWarp))))) {}
  dim3 blocks() const { return blocks_of(rows, kThreads / lanes); }
};

/// The rows of this thread's group, one after the other.
struct RowWalk {
  const RowShape& shape;
  int groups, lane;
  std::int64_t first, row;

  __device__ explicit RowWalk(const RowShape& s)
      : shape(s), groups(kThreads / s.lanes), lane(static_cast<int>(threadIdx.x) % s.lanes),
        first(std::int64_t{blockIdx.x} * groups),
        row(first + static_cast<int>(threadIdx.x) / s.lanes) {}
  /// True while a group of the block has a row.
  __device__ bool is_inside() const { return first < shape.rows; }
  __device__ bool has_row() const { return row < shape.rows; }
  __device__ void next() {
    const std::int64_t step = std::int64_t{gridDim.x} * groups;
    first += step;
    row += step;
  }
};

template <class T>
__device__ T shuffled_xor(T value, int by) {
  using Word = std::conditional_t<sizeof(T) % 8 == 0, unsigned long long, unsigned>;
  constexpr int kWords = (sizeof(T) + sizeof(Word) - 1) / sizeof(Word);
  Word words[kWords] = {};
  memcpy(words, &value, sizeof value);
  for (int i = 0; i < kWords; ++i) words[i] = __shfl_xor_sync(kAllLanes, words[i], by);
  memcpy(&value, words, sizeof value);
  return value;
}

/// The values of a group's lanes, merged in an order that the number of lanes fixes; every lane
/// gets the result.
template <class T, class Merge>
__device__ T merged_in_group(T value, int lanes, Merge merge) {
  for (int by = (lanes < kWarp ? lanes : kWarp) / 2; by > 0; by /= 2)
    value = merge(value, shuffled_xor(value, by));
  if (lanes <= kWarp) return value;
  constexpr int kWarps = kThreads / kWarp;
  __shared__ T of_warps[kWarps];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread % kWarp == 0) of_warps[thread / kWarp] = value;
  __syncthreads();
  value = of_warps[0];
  for (int i = 1; i < kWarps; ++i) value = merge(value, of_warps[i]);
  __syncthreads();
  return value;
}

struct Plus {
  __device__ double operator()(double a, double b) const { return a + b; }
};

/// Calls f with the type of a real floating dtype; cudaErrorInvalidValue for any other.
template <class F>
cudaError_t visit_real(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f16: return f(type_tag<F16>{});
    case DType::bf16: return f(type_tag<BF16>{});
    case DType::f32: return f(type_tag<float>{});
    case DType::f64: return f(type_tag<double>{});
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace troupe::cuda
