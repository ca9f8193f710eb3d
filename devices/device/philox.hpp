// Philox4x32-10: four random words from a counter and a key, nothing kept between calls.
// Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3 (SC 2011).
#pragma once

#include <array>
#include <cstdint>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/primitives.hpp>

namespace troupe {

using PhiloxWords = std::array<std::uint32_t, 4>;

inline PhiloxWords philox(PhiloxWords c, std::uint32_t k0, std::uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    std::uint64_t p0 = std::uint64_t(0xD2511F53) * c[0], p1 = std::uint64_t(0xCD9E8D57) * c[2];
    c = {std::uint32_t(p1 >> 32) ^ c[1] ^ k0, std::uint32_t(p1),
         std::uint32_t(p0 >> 32) ^ c[3] ^ k1, std::uint32_t(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

/// The words of one key, by index; `redraw` distinguishes the attempts at one element.
class Generator {
 public:
  explicit Generator(const RandomKey& key) {
    std::uint64_t h = mixed(mixed(mixed(mixed(key.seed) ^ key.op) ^ key.step) ^ key.tag);
    k0_ = static_cast<std::uint32_t>(h);
    k1_ = static_cast<std::uint32_t>(h >> 32);
    k2_ = static_cast<std::uint32_t>(mixed(h ^ key.op));
  }
  /// The fixed arguments of `philox`, all but the number of a block: k0, k1 and the last word of
  /// the counter.
  std::array<std::uint32_t, 3> words() const { return {k0_, k1_, k2_}; }
  PhiloxWords block(std::uint64_t index, std::uint32_t redraw = 0) const {
    return philox(
        {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), redraw, k2_},
        k0_, k1_);
  }

 private:
  // splitmix64's finaliser: a bijection in which every bit depends on every other.
  static std::uint64_t mixed(std::uint64_t x) {
    x += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
  }
  std::uint32_t k0_, k1_, k2_;
};

}  // namespace troupe
