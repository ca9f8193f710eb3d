// Kernels that run along one axis of [outer, extent, inner], and random numbers, under the contract
// of kernels.hpp.
#pragma once

#include <troupe/devices/cuda/kernels/kernels.hpp>

namespace troupe::cuda {

enum class ScanOp : std::uint8_t { sum, product, linear };
/// As ScanArgs has it; a is null but for linear. Any numeric dtype.
cudaError_t scan(cudaStream_t, ScanOp, DType, const void* x, const void* a, void* out,
                 std::int64_t outer, std::int64_t extent, std::int64_t inner, bool is_exclusive,
                 bool is_reverse);

/// As SearchArgs has it: i64 counts of the elements of `sorted` below each value.
cudaError_t search(cudaStream_t, DType, const void* sorted, const void* values, void* out,
                   std::int64_t rows, std::int64_t extent, std::int64_t n, bool is_right);

std::size_t sort_scratch(DType, std::int64_t rows, std::int64_t extent);
/// As SortArgs has it: the first `count` of each row in order, and where they were; equals keep
/// their order, NaN is the largest. extent below 2^31.
cudaError_t sort(cudaStream_t, DType, const void* x, void* values, std::int64_t* indices,
                 std::int64_t rows, std::int64_t extent, std::int64_t count, bool is_descending,
                 void* scratch);

/// out[o, j, i] = x[o, indices[o, j, i], i], indices [outer, n, inner]; an index outside of [0,
/// extent) is recorded, and its element is not written.
cudaError_t take_along(cudaStream_t, int element_bytes, const void* x, const void* indices,
                       bool are_i64, void* out, std::int64_t outer, std::int64_t extent,
                       std::int64_t n, std::int64_t inner, IndexRecord* record);
/// out[o, indices[o, j, i], i] += x[o, j, i] over zeros, in the order of j; indices as above.
cudaError_t add_along(cudaStream_t, DType, const void* x, const void* indices, bool are_i64,
                      void* out, std::int64_t outer, std::int64_t extent, std::int64_t n,
                      std::int64_t inner, IndexRecord* record);
/// rows[o, j] = o * the product of extents + the element that coordinates [o, j, depth] name; -1,
/// with the coordinate in the record of its axis, if one is outside.
cudaError_t rows_of_coordinates(cudaStream_t, const void* coordinates, bool are_i64,
                                std::int64_t* rows, std::int64_t outer, std::int64_t n, int depth,
                                const std::int64_t* extents, IndexRecord* const* records);

enum class RandomOp : std::uint8_t { uniform, normal, truncated_normal };
/// Element i depends on i and the three words of a Generator (devices/device/philox.hpp) alone, as
/// on the CPU. Complex numbers are pairs.
cudaError_t random(cudaStream_t, RandomOp, DType, const std::uint32_t* words, void* out,
                   std::int64_t n);

}  // namespace troupe::cuda
