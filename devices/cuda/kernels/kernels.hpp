// The kernels of the GPU device that nvcc compiles, as functions that enqueue one or more launches.
// The device implements its primitives over them.
//
// Contract of each: pointers are device memory, aligned to their element (not more: views may start
// anywhere); the call returns before the work is done; the memory must stay until the stream has
// passed; nothing is allocated, and no call waits; no elements, no launch. The result is the
// runtime's answer to the launch, or cudaErrorInvalidValue for an element size, a dtype or a
// reduction that is not defined. Results depend on the arguments alone: no atomic addition of
// floating-point numbers, and no order that depends on the scheduling of blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include <troupe/devices/base/dtype.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe::cuda {

inline constexpr int kMaxRank = 8;

/// One element of any dtype, by value: its bytes come first.
struct alignas(16) Element {
  unsigned char bytes[16] = {};
};

/// A kernel's report of an index that is outside of its bounds: one word of device memory, kNone
/// while every index is inside. Kernels lower it with atomicMin, so that the first position in
/// row-major order stays, whatever the order of the threads.
struct IndexRecord {
  static constexpr unsigned long long kNone = ~0ull;
  unsigned long long word = kNone;

  /// The position in the high 32 bits; the index in the low ones, clamped to 32 signed bits.
  __host__ __device__ static constexpr unsigned long long packed(std::int64_t position,
                                                                 std::int64_t index) {
    const std::int64_t low = index < INT32_MIN ? INT32_MIN : index > INT32_MAX ? INT32_MAX : index;
    const std::int64_t high = position < 0xFFFFFFFE ? position : 0xFFFFFFFE;
    return static_cast<unsigned long long>(high) << 32 |
           static_cast<std::uint32_t>(static_cast<std::int32_t>(low));
  }
  bool is_set() const { return word != kNone; }
  std::int64_t position() const { return static_cast<std::int64_t>(word >> 32); }
  std::int64_t index() const { return static_cast<std::int32_t>(word & 0xFFFFFFFF); }
};

/// A rectangular block of a row-major tensor: `extent` elements along each axis, `stride` elements
/// apart, from `first` on.
struct Box {
  int rank = 0;
  std::int64_t first = 0;
  std::int64_t stride[kMaxRank] = {};
};

// ---- moves: by the size of an element (1, 2, 4, 8 or 16 bytes)

cudaError_t fill(cudaStream_t, const Element& value, int element_bytes, void* out, std::int64_t n);
/// Copies `extent[0] * ... * extent[rank - 1]` elements from a box to a box. Strides may be in any
/// order (a permutation goes through tiles in shared memory); strides of `from` may also be 0 or
/// negative.
cudaError_t copy_box(cudaStream_t, int element_bytes, const void* in, const Box& from, void* out,
                     const Box& to, const std::int64_t* extent);
/// out[outer, columns, rows] = in[outer, rows, columns], through tiles in shared memory.
cudaError_t transpose_tiles(cudaStream_t, int element_bytes, const void* in, void* out,
                            std::int64_t outer, std::int64_t rows, std::int64_t columns);
/// out[o, i, r] = params[o, indices[i], r], with params [outer, extent, inner] and n indices, i32
/// or i64. An index outside of [0, extent) is recorded, also if rows are empty, and its elements
/// are not written.
cudaError_t gather(cudaStream_t, int element_bytes, const void* params, const void* indices,
                   bool are_i64, void* out, std::int64_t outer, std::int64_t extent,
                   std::int64_t inner, std::int64_t n, IndexRecord* record);
/// out[i, d] (of n rows of `depth`), seen as [outer, depth, inner] with one index for each (outer,
/// inner): `on` at d == index, `off` elsewhere; an index outside gives a row of `off`.
cudaError_t one_hot(cudaStream_t, int element_bytes, const void* indices, bool are_i64,
                    const Element& on, const Element& off, void* out, std::int64_t outer,
                    std::int64_t depth, std::int64_t inner);
/// out[i] = start + i * step, computed in f64 and rounded once; integers wrap.
cudaError_t range(cudaStream_t, double start, double step, DType dtype, void* out, std::int64_t n);

// ---- scatter: out [extent, inner], updates [n, inner]; duplicates are applied in index order. An
// index outside of [0, extent) is recorded, also if rows are empty, and its row is not read.

enum class ScatterOp : std::uint8_t { update, add, sub, min, max, mul };
/// `record` may be null: then wrong indices are skipped in silence.
cudaError_t scatter(cudaStream_t, ScatterOp, DType dtype, const void* indices, bool are_i64,
                    const void* updates, void* out, std::int64_t extent, std::int64_t inner,
                    std::int64_t n, IndexRecord* record);

// ---- reductions: in [outer, reduced, inner] to out [outer, inner]

enum class ReduceOp : std::uint8_t {
  sum,
  mean,
  product,
  min,
  max,
  any,
  all,
  argmin,
  argmax,
  logsumexp
};
/// Bytes of scratch memory that `reduce` needs for these extents; 0: none.
std::size_t reduce_scratch(ReduceOp, DType in, std::int64_t outer, std::int64_t reduced,
                           std::int64_t inner);
/// f16, bf16 and f32 accumulate in double, as f64 does; integers in 64 bits; a tree whose shape
/// depends on the extents alone. For booleans, sum and mean are any, product is all. any, all:
/// boolean out; argmin, argmax: i64 out, the first of equals, a NaN before every number. `scratch`
/// as reduce_scratch says.
cudaError_t reduce(cudaStream_t, ReduceOp, DType in_dtype, const void* in, void* out,
                   std::int64_t outer, std::int64_t reduced, std::int64_t inner, void* scratch);

}  // namespace troupe::cuda
