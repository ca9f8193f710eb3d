#include <troupe/ops/format/crc32c.hpp>

#include <array>

namespace troupe {
namespace {

constexpr auto kTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t c = b;
    for (int bit = 0; bit < 8; ++bit) c = c & 1 ? c >> 1 ^ 0x82F63B78 : c >> 1;
    table[b] = c;
  }
  return table;
}();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes)
    crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 255];
  return ~crc;
}

}  // namespace troupe
