#include <troupe/ops/format/crc64.hpp>

#include <array>
#include <bit>
#include <cstring>

namespace troupe {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie");

constexpr std::uint64_t kPolynomial = 0xC96C5795D7870F42;

// table[k][b]: the CRC of byte b followed by k zero bytes, so that eight bytes go in at once
// (Kounavis and Berry, 2005).
using Tables = std::array<std::array<std::uint64_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables t{};
  for (std::uint64_t b = 0; b < 256; ++b) {
    std::uint64_t c = b;
    for (int bit = 0; bit < 8; ++bit) c = c & 1 ? c >> 1 ^ kPolynomial : c >> 1;
    t[0][b] = c;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t b = 0; b < 256; ++b) t[k][b] = t[k - 1][b] >> 8 ^ t[0][t[k - 1][b] & 255];
  return t;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::uint64_t crc64(const void* data, std::size_t bytes, std::uint64_t crc) {
  auto* p = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (; bytes >= 8; p += 8, bytes -= 8) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    word ^= crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][word >> (8 * k) & 255];
  }
  for (; bytes > 0; ++p, --bytes) crc = crc >> 8 ^ kTables[0][(crc ^ *p) & 255];
  return ~crc;
}

}  // namespace troupe
