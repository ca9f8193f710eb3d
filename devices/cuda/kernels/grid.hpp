// The shape of a launch, and positions in it: grid-stride loops of blocks of kThreads threads in
// one dimension, so that no extent meets a limit of the grid.
//
//   return launch(stream, blocks_of(n), dim3(kThreads), 0, kernel<std::uint32_t>, ..., n);
//   for (Index i = first_thread<Index>(); i < n; i += all_threads<Index>()) ...
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

namespace troupe::cuda {

inline constexpr int kThreads = 256;
inline constexpr int kWarp = 32;
inline constexpr int kVectorBytes = 16;
/// A warp's lanes, all of them.
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// On the CPU the numbers are small, so that small tests run every loop, split their reductions, and
// count in 64 bits.
#if defined(__CUDACC__)
/// The most blocks of a grid: 16 for each of 132 multiprocessors, twice the resident ones.
inline constexpr std::int64_t kMostBlocks = 2112;
/// Blocks that fill a device.
inline constexpr std::int64_t kEnoughBlocks = 1056;
/// Groups of blocks that rows are dealt to, a power of two.
inline constexpr std::int64_t kMostOwners = 1024;
/// Positions up to here are counted in 32 bits: one grid's step beyond still fits.
inline constexpr std::int64_t kMostIn32Bits = INT32_MAX;
#define TROUPE_UNROLL_4 _Pragma("unroll 4")
#else
inline constexpr std::int64_t kMostBlocks = 2;
inline constexpr std::int64_t kEnoughBlocks = 6;
inline constexpr std::int64_t kMostOwners = 4;
inline constexpr std::int64_t kMostIn32Bits = 500;
#define TROUPE_UNROLL_4
#endif

__host__ __device__ constexpr std::int64_t ceil_div(std::int64_t n, std::int64_t by) {
  return n / by + (n % by != 0);
}
/// The least power of two that is not less than n.
constexpr std::int64_t power_of_two(std::int64_t n) {
  std::int64_t power = 1;
  while (power < n) power *= 2;
  return power;
}

/// Blocks for n items, `a_block` for each.
inline dim3 blocks_of(std::int64_t n, std::int64_t a_block = kThreads) {
  return dim3(static_cast<unsigned>(
      std::max<std::int64_t>(1, std::min(ceil_div(n, a_block), kMostBlocks))));
}

template <class Index>
__device__ inline Index first_thread() {
  return static_cast<Index>(blockIdx.x) * static_cast<Index>(blockDim.x) +
         static_cast<Index>(threadIdx.x);
}
template <class Index>
__device__ inline Index all_threads() {
  return static_cast<Index>(gridDim.x) * static_cast<Index>(blockDim.x);
}

/// Whether positions below n are counted in 32 bits.
constexpr bool fits_32_bits(std::int64_t n) { return n <= kMostIn32Bits; }

/// Division by a number known on the host: in 32 bits a product and a shift (Granlund and
/// Montgomery, 1994), for dividends below 2^31.
template <class Index>
struct Divisor {
  Index divisor = 1;
  Divisor() = default;
  explicit Divisor(std::int64_t by) : divisor(static_cast<Index>(by)) {}
  __device__ Index quotient(Index n) const { return n / divisor; }
};
template <>
struct Divisor<std::uint32_t> {
  std::uint32_t divisor = 1, factor = 1, shift = 0;
  Divisor() = default;
  explicit Divisor(std::int64_t by) : divisor(static_cast<std::uint32_t>(by)) {
    while ((std::uint64_t(1) << shift) < divisor) ++shift;
    factor = static_cast<std::uint32_t>(
        ((std::uint64_t(1) << 32) * ((std::uint64_t(1) << shift) - divisor)) / divisor + 1);
  }
  __device__ std::uint32_t quotient(std::uint32_t n) const {
    return (static_cast<std::uint32_t>((std::uint64_t(n) * factor) >> 32) + n) >> shift;
  }
};

/// Indices in device memory, i32 or i64.
struct Indices {
  const void* data;
  bool are_i64;
  __device__ std::int64_t operator[](std::int64_t i) const {
    return are_i64 ? static_cast<const std::int64_t*>(data)[i]
                   : static_cast<const std::int32_t*>(data)[i];
  }
};
__device__ inline bool is_inside(std::int64_t index, std::int64_t extent) {
  return static_cast<std::uint64_t>(index) < static_cast<std::uint64_t>(extent);
}

inline std::uintptr_t address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}
inline bool is_aligned(const void* pointer, std::size_t bytes) {
  return address_of(pointer) % bytes == 0;
}

}  // namespace troupe::cuda
