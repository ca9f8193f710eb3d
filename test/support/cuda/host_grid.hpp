// Runs CUDA kernels on the CPU, for tests: g++ compiles a `.cu` file as plain C++.
//
//   g++ -x c++ -include troupe/test/support/cuda/host_grid.hpp -isystem $CUDA/include sums.cu
//   host_grid::run({.grid = dim3(8), .block = dim3(256)}, [&] { row_sum<256>(x, y, 1000); });
//
// A thread of a block is a fiber. A block runs on one OS thread, and a grid's blocks follow each
// other. A fiber is switched only at barriers, shuffles and votes.
//
// - `Launch::seed` shuffles the threads and the blocks: a missing barrier changes the numbers.
// - TSan sees each thread of a block as a thread that only barriers order. It reports a missing
//   barrier as a data race, at the kernel's line.
// - If threads wait for each other in vain, `run` throws Deadlock, which names the lines.
//
// Threads: each OS thread runs grids of its own.
// Ownership: stacks belong to the OS thread and are freed when it ends.
// Limits: README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>

#include <cuda_runtime.h>

// Without nvcc, CUDA's header defines the words of a kernel as nothing. These two have a meaning.
#undef __shared__
#undef __constant__
#define __shared__ static thread_local  // belongs to the block that this OS thread runs
#define __constant__ static const
#undef __launch_bounds__
#define __launch_bounds__(...)

namespace host_grid {

/// The threads of a block wait in a way that cannot end, or that CUDA does not define.
struct Deadlock : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A kernel called __trap().
struct Trap : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Launch {
  dim3 grid, block;
  std::size_t shared_bytes = 0;  // dynamic shared memory
  std::uint64_t seed = 0;        // shuffles threads and blocks; 0: as they are numbered
};

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kMaxThreads = 1024;              // in a block
inline constexpr std::size_t kMaxSharedBytes = 227 << 10;  // for a block, as on sm_90

/// Runs `kernel` once for each thread of the grid. Throws Deadlock, or what a thread of the kernel
/// throws first; the remaining threads of that block unwind, and later blocks do not start.
void run(const Launch& launch, const std::function<void()>& kernel);

/// Returns the dynamic shared memory of the block that runs: 0xFF bytes when a block starts.
void* dynamic_shared();

// ---- what the built-in names below stand for

const uint3& thread_index();
const uint3& block_index();
const dim3& block_size();
const dim3& grid_size();
unsigned lane();  // within its warp

/// A call in a kernel's source.
struct Site {
  const char* call = "";
  const char* file = "";
  int line = 0;
};

void wait_for_block(Site site);
/// As wait_for_block; returns the number of threads that voted yes.
unsigned count_votes(bool vote, Site site);
/// Waits for the lanes of `mask`, and returns those that voted yes.
unsigned ballot(unsigned mask, bool vote, Site site);
/// Gives `bits` and returns those of lane `from`, or 0xFF bytes if that lane gives none.
std::uint64_t exchange(unsigned mask, std::uint64_t bits, unsigned from, Site site);
/// The lanes of the warp that have not ended.
unsigned live_lanes();
[[noreturn]] void trap(Site site);

template <class T>
concept Shuffled = (std::is_arithmetic_v<T> || std::is_enum_v<T>)&&(sizeof(T) == 4 ||
                                                                    sizeof(T) == 8);

template <Shuffled T>
T shuffle(unsigned mask, T value, unsigned from, Site site) {
  std::uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  bits = exchange(mask, bits, from, site);
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace host_grid

#define threadIdx (::host_grid::thread_index())
#define blockIdx (::host_grid::block_index())
#define blockDim (::host_grid::block_size())
#define gridDim (::host_grid::grid_size())
inline constexpr int warpSize = 32;

// The last two parameters take the place of the call; kernels do not pass them.
#define HOST_GRID_CALLER const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(HOST_GRID_CALLER) {
  host_grid::wait_for_block({"__syncthreads", file, line});
}
inline int __syncthreads_count(int vote, HOST_GRID_CALLER) {
  return static_cast<int>(host_grid::count_votes(vote, {"__syncthreads_count", file, line}));
}
inline int __syncthreads_or(int vote, HOST_GRID_CALLER) {
  return host_grid::count_votes(vote, {"__syncthreads_or", file, line}) != 0;
}
inline int __syncthreads_and(int vote, HOST_GRID_CALLER) {
  return host_grid::count_votes(!vote, {"__syncthreads_and", file, line}) == 0;
}

inline void __syncwarp(unsigned mask = ~0u, HOST_GRID_CALLER) {
  host_grid::ballot(mask, false, {"__syncwarp", file, line});
}
inline unsigned __ballot_sync(unsigned mask, int vote, HOST_GRID_CALLER) {
  return host_grid::ballot(mask, vote, {"__ballot_sync", file, line});
}
inline int __any_sync(unsigned mask, int vote, HOST_GRID_CALLER) {
  return host_grid::ballot(mask, vote, {"__any_sync", file, line}) != 0;
}
inline int __all_sync(unsigned mask, int vote, HOST_GRID_CALLER) {
  return host_grid::ballot(mask, !vote, {"__all_sync", file, line}) == 0;
}
inline unsigned __activemask() { return host_grid::live_lanes(); }

// Shuffles within segments of `width` lanes. A lane beyond its segment takes its own value.
template <host_grid::Shuffled T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32, HOST_GRID_CALLER) {
  const unsigned inside = static_cast<unsigned>(width) - 1;
  return host_grid::shuffle(mask, value,
                            (host_grid::lane() & ~inside) | (static_cast<unsigned>(from) & inside),
                            {"__shfl_sync", file, line});
}
template <host_grid::Shuffled T>
T __shfl_xor_sync(unsigned mask, T value, int flipped, int width = 32, HOST_GRID_CALLER) {
  const unsigned me = host_grid::lane(), other = me ^ static_cast<unsigned>(flipped);
  const bool is_inside = other <= (me | (static_cast<unsigned>(width) - 1));
  return host_grid::shuffle(mask, value, is_inside ? other : me, {"__shfl_xor_sync", file, line});
}
template <host_grid::Shuffled T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, HOST_GRID_CALLER) {
  const unsigned me = host_grid::lane();
  const bool is_inside = me + by <= (me | (static_cast<unsigned>(width) - 1));
  return host_grid::shuffle(mask, value, is_inside ? me + by : me,
                            {"__shfl_down_sync", file, line});
}
template <host_grid::Shuffled T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, HOST_GRID_CALLER) {
  const unsigned me = host_grid::lane();
  const bool is_inside = (me & (static_cast<unsigned>(width) - 1)) >= by;
  return host_grid::shuffle(mask, value, is_inside ? me - by : me, {"__shfl_up_sync", file, line});
}

[[noreturn]] inline void __trap(HOST_GRID_CALLER) { host_grid::trap({"__trap", file, line}); }

#undef HOST_GRID_CALLER

#include <troupe/test/support/cuda/host_intrinsics.hpp>
