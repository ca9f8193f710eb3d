// Kernels on the CPU: barriers, shuffles and atomics of host_grid, and the faults that it shows.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <troupe/devices/cuda/kernels/launch.hpp>
#include <troupe/test/support/cuda/host_grid.hpp>

BOOST_AUTO_TEST_SUITE(host_grid_test)

namespace {

/// Sums of rows, a block each. Without its second barrier the tree reads what is not written yet.
template <int kThreads, bool kHasBarrier = true>
__global__ void row_sum(const float* __restrict__ x, float* __restrict__ y, int columns) {
  __shared__ float part[kThreads];
  const float* row = x + blockIdx.x * static_cast<long>(columns);
  float sum = 0;
  for (int c = static_cast<int>(threadIdx.x); c < columns; c += kThreads) sum += row[c];
  part[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    if (kHasBarrier) __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}

/// Sums rows through dynamic shared memory.
__global__ void row_sum_dynamic(const float* x, float* y, int columns) {
  TROUPE_DYNAMIC_SHARED(float, part);
  part[threadIdx.x] = static_cast<int>(threadIdx.x) < columns
                          ? x[blockIdx.x * static_cast<long>(columns) + threadIdx.x]
                          : 0.0f;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float sum = 0;
  for (unsigned i = 0; i < blockDim.x; ++i) sum += part[i];
  y[blockIdx.x] = sum;
}

/// Softmax of rows, a warp each.
__global__ void warp_softmax(const float* x, float* y, int rows, int columns) {
  const int row = static_cast<int>(blockIdx.x * blockDim.y + threadIdx.y);
  if (row >= rows) return;
  const float* in = x + row * static_cast<long>(columns);
  const int lane = static_cast<int>(threadIdx.x);
  float most = -INFINITY;
  for (int c = lane; c < columns; c += 32) most = max(most, in[c]);
  for (int d = 16; d > 0; d /= 2) most = max(most, __shfl_xor_sync(~0u, most, d));
  float sum = 0;
  for (int c = lane; c < columns; c += 32) sum += expf(in[c] - most);
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  for (int c = lane; c < columns; c += 32)
    y[row * static_cast<long>(columns) + c] = expf(in[c] - most) / sum;
}

/// Half of a warp exchanges more often than the other half.
__global__ void uneven_exchanges(int* out) {
  int value = static_cast<int>(threadIdx.x);
  if (threadIdx.x < 16)
    for (int k = 0; k < 3; ++k) value = __shfl_xor_sync(0xFFFFu, value, 1);
  out[threadIdx.x] = value + 100 * __shfl_sync(~0u, value, 31);
}

__global__ void warp_functions(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  const bool is_full = __activemask() == ~0u;  // before a lane ends
  const unsigned odd = __ballot_sync(~0u, lane % 2);
  const bool is_right =
      is_full && odd == 0xAAAAAAAAu && __any_sync(~0u, lane == 7) && !__all_sync(~0u, lane < 31) &&
      __shfl_down_sync(~0u, lane, 3) == (lane < 29 ? lane + 3 : lane) &&
      __shfl_up_sync(~0u, lane, 3) == (lane >= 3 ? lane - 3 : lane) &&
      __shfl_sync(~0u, lane, 1, 8) == lane / 8 * 8 + 1 &&
      __shfl_down_sync(~0u, lane, 4, 8) == (lane % 8 < 4 ? lane + 4 : lane) &&
      __shfl_xor_sync(~0u, lane, 8, 8) == (lane % 16 < 8 ? lane : lane - 8) &&
      __shfl_xor_sync(~0u, lane, 3, 8) == (lane ^ 3) && __syncthreads_count(lane < 5) == 5 &&
      __syncthreads_or(lane == 9) && !__syncthreads_and(lane != 9);
  out[lane] = is_right;
}

__global__ void atomics(int* sum, unsigned long long* least, float* total, unsigned* taken) {
  atomicAdd(sum, static_cast<int>(threadIdx.x));
  atomicMin(least, 1000ull - threadIdx.x - 32 * blockIdx.x);
  atomicAdd(total, 0.5f);
  if (atomicCAS(taken, 0, threadIdx.x + 1) == 0) atomicExch(taken + 1, threadIdx.x + 1);
}

__global__ void wait_apart() {
  if (threadIdx.x % 2) __syncthreads();
  else __syncwarp();
}

__global__ void wait_at_two_barriers() {
  if (threadIdx.x < 32) __syncthreads();
  else __syncthreads();
}

__global__ void trap_in_one() {
  const std::vector<int> on_each_stack(10);
  if (threadIdx.x == 5) __trap();
  __syncthreads();
}

std::vector<float> waves(std::size_t n) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(std::sin(static_cast<double>(i)));
  return x;
}

double largest_error(const std::vector<float>& x, const std::vector<float>& sums) {
  const std::size_t columns = x.size() / sums.size();
  double largest = 0;
  for (std::size_t r = 0; r < sums.size(); ++r) {
    const double sum = std::accumulate(x.begin() + static_cast<long>(r * columns),
                                       x.begin() + static_cast<long>((r + 1) * columns), 0.0);
    largest = std::fmax(largest, std::fabs(sum - static_cast<double>(sums[r])));
  }
  return largest;
}

std::string deadlock(void (*kernel)(), unsigned threads) {
  try {
    host_grid::run({.grid = dim3(2), .block = dim3(threads)}, kernel);
  } catch (const host_grid::Deadlock& e) { return e.what(); }
  return "none";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(sums_rows_in_any_order) {
  const std::vector<float> x = waves(12 * 500);
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    std::vector<float> y(12), z(20);
    host_grid::run({.grid = dim3(12), .block = dim3(128), .seed = seed},
                   [&] { row_sum<128>(x.data(), y.data(), 500); });
    BOOST_TEST(largest_error(x, y) < 1e-5);
    host_grid::run(
        {.grid = dim3(20), .block = dim3(320), .shared_bytes = 320 * sizeof(float), .seed = seed},
        [&] { row_sum_dynamic(x.data(), z.data(), 300); });
    BOOST_TEST(largest_error(x, z) < 1e-4);
  }
}

// TSan reports the race itself.
#if !defined(__SANITIZE_THREAD__)
BOOST_AUTO_TEST_CASE(shows_a_missing_barrier) {
  const std::vector<float> x = waves(12 * 500);
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    std::vector<float> y(12);
    host_grid::run({.grid = dim3(12), .block = dim3(128), .seed = seed},
                   [&] { row_sum<128, false>(x.data(), y.data(), 500); });
    BOOST_TEST(largest_error(x, y) > 1e-3);
  }
}
#endif

BOOST_AUTO_TEST_CASE(softmax_of_warps_is_exact) {
  constexpr int kRows = 10, kColumns = 77;
  const std::vector<float> x = waves(kRows * kColumns);
  std::vector<float> y(x.size());
  host_grid::run({.grid = dim3(3), .block = dim3(32, 4), .seed = 9},
                 [&] { warp_softmax(x.data(), y.data(), kRows, kColumns); });
  for (int r = 0; r < kRows; ++r) {
    double sum = 0;
    for (int c = 0; c < kColumns; ++c) sum += std::exp(double{x[r * kColumns + c]});
    for (int c = 0; c < kColumns; ++c)
      BOOST_REQUIRE_SMALL(std::exp(double{x[r * kColumns + c]}) / sum - y[r * kColumns + c], 1e-7);
  }
}

BOOST_AUTO_TEST_CASE(exchanges_within_masks_and_widths) {
  int out[32];
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    host_grid::run({.grid = dim3(1), .block = dim3(32), .seed = seed},
                   [&] { uneven_exchanges(out); });
    for (int lane = 0; lane < 32; ++lane)
      BOOST_TEST(out[lane] == (lane < 16 ? lane ^ 1 : lane) + 3100);
    host_grid::run({.grid = dim3(1), .block = dim3(32), .seed = seed},
                   [&] { warp_functions(out); });
    BOOST_TEST(std::accumulate(out, out + 32, 0) == 32);
  }
}

BOOST_AUTO_TEST_CASE(has_the_atomics_of_the_device) {
  int sum = 0;
  unsigned long long least = ~0ull;
  float total = 0;
  unsigned taken[2] = {};
  host_grid::run({.grid = dim3(3), .block = dim3(32), .seed = 4},
                 [&] { atomics(&sum, &least, &total, taken); });
  BOOST_TEST(sum == 3 * 31 * 16);
  BOOST_TEST(least == 1000u - 31 - 64);
  BOOST_TEST(total == 48);
  BOOST_TEST((taken[0] != 0 && taken[0] == taken[1]));
}

BOOST_AUTO_TEST_CASE(names_threads_that_wait_in_vain) {
  for (int i = 0; i < 5; ++i) {  // their stacks are used again
    const std::string apart = deadlock(&wait_apart, 64);
    BOOST_TEST(has(apart, "32 threads wait in __syncwarp at host_grid_test.cpp:"), apart);
    BOOST_TEST(has(apart, "32 threads wait in __syncthreads at host_grid_test.cpp:"), apart);
  }
  const std::string two = deadlock(&wait_at_two_barriers, 64);
  BOOST_TEST(has(two, "the block diverges"), two);
  BOOST_TEST(has(two, "the first is thread 32"), two);
  BOOST_CHECK_THROW(host_grid::run({.grid = dim3(1), .block = dim3(64)}, &trap_in_one),
                    host_grid::Trap);
  BOOST_CHECK_THROW(host_grid::run({.grid = dim3(1), .block = dim3(1025)}, &trap_in_one),
                    std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
