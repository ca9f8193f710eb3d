// Random tensors. An element depends on the key and its index alone: not on the split, the level or
// the device. Blocks of Philox words are counted from 0 along the elements: four elements of up to
// 32 bits a block, two of 64 bits.
//
//   counter = (block low, block high, redraw, key's third word)
//   key = 96 bits of (seed, op, step, tag)
//
// Box-Muller runs in double and is rounded once; up to f32 by the level's logarithm, sine and
// cosine, which are within 1e-11.
#include <cmath>
#include <complex>
#include <numbers>

#include <fmt/format.h>

#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/cpu/level.hpp>
#include <troupe/devices/device/philox.hpp>

namespace troupe::cpu {
namespace {

std::uint64_t word64(const std::uint32_t* w, int i) {
  return w[2 * i] | std::uint64_t(w[2 * i + 1]) << 32;
}

struct Pair {
  double first, second;
};
// u in (0, 1], v in [0, 1).
Pair box_muller(double u, double v) {
  double radius = std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * v;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// Draws `kPerBlock` elements at a time.
template <class T>
struct Draw {
  static constexpr int kPerBlock = sizeof(T) == 8 ? 2 : 4;

  static T uniform(const std::uint32_t* w, int i) {
    if constexpr (std::is_same_v<T, float>) return static_cast<float>(w[i] >> 8) * 0x1p-24f;
    else if constexpr (std::is_same_v<T, double>)
      return static_cast<double>(word64(w, i) >> 11) * 0x1p-53;
    else if constexpr (std::is_same_v<T, half>)
      return half(static_cast<float>(w[i] >> 21) * 0x1p-11f);
    else if constexpr (std::is_same_v<T, bfloat16>)
      return bfloat16(static_cast<float>(w[i] >> 24) * 0x1p-8f);
    else if constexpr (std::is_same_v<T, bool>) return w[i] & 1;
    else if constexpr (sizeof(T) == 8) return static_cast<T>(word64(w, i));
    else return static_cast<T>(w[i]);
  }

  static void normal(const std::uint32_t* w, double* z) {
    Pair p = box_muller(static_cast<double>((word64(w, 0) >> 11) + 1) * 0x1p-53,
                        static_cast<double>(word64(w, 1) >> 11) * 0x1p-53);
    z[0] = p.first;
    z[1] = p.second;
  }
};

constexpr std::int64_t kBlocksAtOnce = 256;

// Draws f32, and f16 and bf16 on the way, by the level's kernel. f64 needs more digits.
template <class T>
void draw_normal(bool is_truncated, const Generator& g, const std::uint32_t* words,
                 std::int64_t first_block, T* out, std::int64_t count) {
  using D = Draw<T>;
  constexpr bool is_wide = std::is_same_v<T, double>;
  using Z = std::conditional_t<is_wide, double, float>;
  auto normal = [](const std::uint32_t* from, Z* to, std::int64_t blocks) {
    if constexpr (is_wide)
      for (std::int64_t b = 0; b < blocks; ++b) D::normal(from + 4 * b, to + 2 * b);
    else level_kernels().normal_f32(to, from, 4 * blocks);
  };
  Z z[4 * kBlocksAtOnce], again[4];
  normal(words, z, (count + D::kPerBlock - 1) / D::kPerBlock);
  for (std::int64_t i = 0; is_truncated && i < count; ++i)
    for (std::uint32_t redraw = 1; std::fabs(z[i]) > 2; ++redraw) {
      const PhiloxWords w =
          g.block(static_cast<std::uint64_t>(first_block + i / D::kPerBlock), redraw);
      normal(w.data(), again, 1);
      z[i] = again[i % D::kPerBlock];
    }
  for (std::int64_t i = 0; i < count; ++i) out[i] = T(z[i]);
}

template <class T>
void draw_range(Random how, const Generator& g, T* out, std::int64_t begin, std::int64_t end) {
  using D = Draw<T>;
  const LevelKernels& k = level_kernels();
  std::uint32_t words[4 * kBlocksAtOnce];
  // begin is a multiple of kPerBlock
  for (std::int64_t at = begin; at < end; at += kBlocksAtOnce * D::kPerBlock) {
    const std::int64_t count = std::min(kBlocksAtOnce * D::kPerBlock, end - at),
                       block = at / D::kPerBlock;
    k.philox(words, g.words().data(), static_cast<std::uint64_t>(block),
             (count + D::kPerBlock - 1) / D::kPerBlock);
    if (how != Random::uniform) {
      if constexpr (!std::is_integral_v<T>)
        draw_normal(how == Random::truncated_normal, g, words, block, out + at, count);
    } else if constexpr (std::is_same_v<T, float>) {
      k.uniform_f32(out + at, words, count);
    } else {
      for (std::int64_t i = 0; i < count; ++i)
        out[at + i] = D::uniform(words + i / D::kPerBlock * 4, static_cast<int>(i % D::kPerBlock));
    }
  }
}

}  // namespace

void CpuPrimitives::random(Stream&, Random how, const RandomKey& key, View out) const {
  Generator g(key);
  auto draw = [&]<class T>(type_tag<T>, std::int64_t n) {
    T* to = static_cast<T*>(out.data);
    for_ranges(pool_, n, kBlock / 4,
               [&](std::int64_t begin, std::int64_t end) { draw_range(how, g, to, begin, end); });
  };
  visit_dtype(out.dtype, [&]<class T>(type_tag<T>) {
    if constexpr (std::is_integral_v<T>) {
      if (how != Random::uniform)
        throw Error(Code::unimplemented,
                    fmt::format("normal numbers of {} are not defined", name_of(out.dtype)));
      draw(type_tag<T>{}, out.elements());
    } else if constexpr (std::is_same_v<T, std::complex<float>>) {
      draw(type_tag<float>{}, 2 * out.elements());
    } else if constexpr (std::is_same_v<T, std::complex<double>>) {
      draw(type_tag<double>{}, 2 * out.elements());
    } else {
      draw(type_tag<T>{}, out.elements());
    }
  });
}

}  // namespace troupe::cpu
