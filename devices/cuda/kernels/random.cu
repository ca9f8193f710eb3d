// Random numbers: Philox4x32-10 (Salmon et al., 2011) of a block's number, four words a block, as
// devices/cpu/elements/random.cpp assigns them to elements. Box-Muller runs in double and is
// rounded once.
#include <troupe/devices/cuda/kernels/axes.hpp>
#include <troupe/devices/cuda/kernels/elements.hpp>
#include <troupe/devices/cuda/kernels/grid.hpp>
#include <troupe/devices/cuda/kernels/launch.hpp>

namespace troupe::cuda {
namespace {

struct Words {
  std::uint32_t at[4];
  __device__ std::uint64_t pair(int i) const {
    return at[2 * i] | static_cast<std::uint64_t>(at[2 * i + 1]) << 32;
  }
};

struct PhiloxKey {
  std::uint32_t k0, k1, k2;

  __device__ Words block(std::uint64_t index, std::uint32_t redraw) const {
    Words c{
        {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), redraw, k2}};
    std::uint32_t a = k0, b = k1;
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c.at[0],
                          p1 = std::uint64_t{0xCD9E8D57} * c.at[2];
      c = {{static_cast<std::uint32_t>(p1 >> 32) ^ c.at[1] ^ a, static_cast<std::uint32_t>(p1),
            static_cast<std::uint32_t>(p0 >> 32) ^ c.at[3] ^ b, static_cast<std::uint32_t>(p0)}};
      a += 0x9E3779B9;
      b += 0xBB67AE85;
    }
    return c;
  }
};

template <class T>
constexpr int kPerBlock = sizeof(T) == 8 ? 2 : 4;

template <class T>
__device__ T uniform(const Words& w, int i) {
  if constexpr (std::is_same_v<T, float>) return static_cast<float>(w.at[i] >> 8) * 0x1p-24f;
  else if constexpr (std::is_same_v<T, double>)
    return static_cast<double>(w.pair(i) >> 11) * 0x1p-53;
  else if constexpr (std::is_same_v<T, F16>)
    return nearest_f16(static_cast<float>(w.at[i] >> 21) * 0x1p-11f);
  else if constexpr (std::is_same_v<T, BF16>)
    return nearest_bf16(static_cast<float>(w.at[i] >> 24) * 0x1p-8f);
  else if constexpr (std::is_same_v<T, bool>) return (w.at[i] & 1) != 0;
  else if constexpr (sizeof(T) == 8) return static_cast<T>(w.pair(i));
  else return static_cast<T>(w.at[i]);
}

// Element i of a block: pairs of elements share a radius and an angle.
template <class T>
__device__ double normal(const Words& w, int i) {
  double u, v;
  if constexpr (std::is_same_v<T, double>) {
    u = static_cast<double>((w.pair(0) >> 11) + 1) * 0x1p-53;
    v = static_cast<double>(w.pair(1) >> 11) * 0x1p-53;
  } else {
    u = (static_cast<double>(w.at[i & ~1]) + 1) * 0x1p-32;
    v = static_cast<double>(w.at[i | 1]) * 0x1p-32;
  }
  const double radius = sqrt(-2 * log(u)), angle = 6.283185307179586477 * v;
  return radius * (i & 1 ? sin(angle) : cos(angle));
}

template <class T>
__global__ __launch_bounds__(kThreads) void draw(RandomOp how, PhiloxKey key, T* __restrict__ out,
                                                 std::int64_t n) {
  const std::int64_t blocks = ceil_div(n, kPerBlock<T>);
  for (std::int64_t b = first_thread<std::int64_t>(); b < blocks;
       b += all_threads<std::int64_t>()) {
    const auto index = static_cast<std::uint64_t>(b);
    const Words words = key.block(index, 0);
    for (int i = 0; i < kPerBlock<T> && b * kPerBlock<T> + i < n; ++i) {
      T& to = out[b * kPerBlock<T> + i];
      if (how == RandomOp::uniform) {
        to = uniform<T>(words, i);
        continue;
      }
      if constexpr (is_real_float<T>) {
        // f16 and bf16 by way of f32, as on the CPU.
        using W = std::conditional_t<std::is_same_v<T, double>, double, float>;
        W z = static_cast<W>(normal<T>(words, i));
        for (std::uint32_t redraw = 1;
             how == RandomOp::truncated_normal && fabs(static_cast<double>(z)) > 2; ++redraw)
          z = static_cast<W>(normal<T>(key.block(index, redraw), i));
        to = narrowed<T>(z);
      }
    }
  }
}

}  // namespace

cudaError_t random(cudaStream_t stream, RandomOp how, DType dtype, const std::uint32_t* words,
                   void* out, std::int64_t n) {
  if (n == 0) return cudaSuccess;
  if (dtype == DType::c64 || dtype == DType::c128) {
    n *= 2;
    dtype = dtype == DType::c64 ? DType::f32 : DType::f64;
  }
  const PhiloxKey key{words[0], words[1], words[2]};
  return visit_elements(dtype, [&]<class T>(type_tag<T>) -> cudaError_t {
    if constexpr (is_complex_type<T>) return cudaErrorInvalidValue;
    else {
      if (how != RandomOp::uniform && !is_real_float<T>) return cudaErrorInvalidValue;
      return launch(stream, blocks_of(ceil_div(n, kPerBlock<T>)), dim3(kThreads), 0, draw<T>, how,
                    key, static_cast<T*>(out), n);
    }
  });
}

}  // namespace troupe::cuda
