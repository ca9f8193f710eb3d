// A hash of text that names files and kernels: 128 bits, the same on every machine.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace troupe::cuda {

using TextHash = std::array<std::uint64_t, 2>;

/// Two lanes, each multiplied and shifted after every byte; the last steps are MurmurHash3's.
inline TextHash hash_of(std::string_view text) {
  TextHash lanes{0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu ^ text.size()};
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    lanes[0] = (lanes[0] ^ byte) * 0x100000001b3u;
    lanes[1] = (lanes[1] ^ byte) * 0xff51afd7ed558ccdu;
    lanes[1] ^= lanes[1] >> 32;
  }
  for (std::uint64_t& lane : lanes) {
    lane = (lane ^ lane >> 33) * 0xff51afd7ed558ccdu;
    lane = (lane ^ lane >> 33) * 0xc4ceb9fe1a85ec53u;
    lane ^= lane >> 33;
  }
  return lanes;
}
inline std::string hex_of(const TextHash& hash) {
  return fmt::format("{:016x}{:016x}", hash[0], hash[1]);
}

}  // namespace troupe::cuda
