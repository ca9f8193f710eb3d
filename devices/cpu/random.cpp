// Random tensors. An element depends on the key and its index alone: not on the split, the level or
// the device. Blocks of Philox words are counted from 0 along the elements: four elements of up to
// 32 bits a block, two of 64 bits.
//
//   counter = (block low, block high, redraw, key's third word);  key = 96 bits of (seed, op, step, tag)
//
// Box-Muller runs in double and is rounded once.
#include <cmath>
#include <complex>
#include <numbers>

#include <fmt/format.h>

#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/philox.hpp>

namespace troupe::cpu {
namespace {

std::uint64_t word64(const PhiloxWords& w, int i) { return w[2 * i] | std::uint64_t(w[2 * i + 1]) << 32; }

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

  static T uniform(const PhiloxWords& w, int i) {
    if constexpr (std::is_same_v<T, float>) return static_cast<float>(w[i] >> 8) * 0x1p-24f;
    else if constexpr (std::is_same_v<T, double>) return static_cast<double>(word64(w, i) >> 11) * 0x1p-53;
    else if constexpr (std::is_same_v<T, half>) return half(static_cast<float>(w[i] >> 21) * 0x1p-11f);
    else if constexpr (std::is_same_v<T, bfloat16>) return bfloat16(static_cast<float>(w[i] >> 24) * 0x1p-8f);
    else if constexpr (std::is_same_v<T, bool>) return w[i] & 1;
    else if constexpr (sizeof(T) == 8) return static_cast<T>(word64(w, i));
    else return static_cast<T>(w[i]);
  }

  static void normal(const PhiloxWords& w, double* z) {
    if constexpr (sizeof(T) == 8) {
      Pair p = box_muller(static_cast<double>((word64(w, 0) >> 11) + 1) * 0x1p-53, static_cast<double>(word64(w, 1) >> 11) * 0x1p-53);
      z[0] = p.first;
      z[1] = p.second;
    } else {
      for (int i = 0; i < 4; i += 2) {
        Pair p = box_muller((static_cast<double>(w[i]) + 1) * 0x1p-32, static_cast<double>(w[i + 1]) * 0x1p-32);
        z[i] = p.first;
        z[i + 1] = p.second;
      }
    }
  }

  static T rounded(double x) {
    if constexpr (std::is_floating_point_v<T>) return static_cast<T>(x);
    else return T(static_cast<float>(x));
  }
};

template <class T>
void draw_range(Random how, const Generator& g, T* out, std::int64_t begin, std::int64_t end) {
  using D = Draw<T>;
  for (std::int64_t at = begin; at < end; at += D::kPerBlock) {  // begin is a multiple of kPerBlock
    std::uint64_t block = static_cast<std::uint64_t>(at / D::kPerBlock);
    int count = static_cast<int>(std::min<std::int64_t>(D::kPerBlock, end - at));
    PhiloxWords w = g.block(block);
    if (how == Random::uniform) {
      for (int i = 0; i < count; ++i) out[at + i] = D::uniform(w, i);
      continue;
    }
    if constexpr (!std::is_integral_v<T>) {
      double z[4];
      D::normal(w, z);
      for (int i = 0; i < count; ++i) {
        double again[4];
        double value = z[i];
        for (std::uint32_t redraw = 1; how == Random::truncated_normal && std::fabs(value) > 2; ++redraw) {
          D::normal(g.block(block, redraw), again);
          value = again[i];
        }
        out[at + i] = D::rounded(value);
      }
    }
  }
}

}  // namespace

void CpuPrimitives::random(Stream&, Random how, const RandomKey& key, View out) const {
  Generator g(key);
  auto draw = [&]<class T>(type_tag<T>, std::int64_t n) {
    T* to = static_cast<T*>(out.data);
    for_ranges(pool_, n, kBlock / 4, [&](std::int64_t begin, std::int64_t end) { draw_range(how, g, to, begin, end); });
  };
  visit_dtype(out.dtype, [&]<class T>(type_tag<T>) {
    if constexpr (std::is_integral_v<T>) {
      if (how != Random::uniform)
        throw Error(Code::unimplemented, fmt::format("normal numbers of {} are not defined", name_of(out.dtype)));
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
