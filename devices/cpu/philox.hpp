// Philox4x32-10: four random words from a counter and a key, nothing kept between calls.
// Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3 (SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace troupe::cpu {

using PhiloxWords = std::array<std::uint32_t, 4>;

inline PhiloxWords philox(PhiloxWords c, std::uint32_t k0, std::uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    std::uint64_t p0 = std::uint64_t(0xD2511F53) * c[0], p1 = std::uint64_t(0xCD9E8D57) * c[2];
    c = {std::uint32_t(p1 >> 32) ^ c[1] ^ k0, std::uint32_t(p1), std::uint32_t(p0 >> 32) ^ c[3] ^ k1, std::uint32_t(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

}  // namespace troupe::cpu
