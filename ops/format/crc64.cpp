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

// A raw state (without the complements) over bytes.
std::uint64_t by_tables(const unsigned char* p, std::size_t bytes, std::uint64_t state) {
  for (; bytes >= 8; p += 8, bytes -= 8) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    word ^= state;
    state = 0;
    for (std::size_t k = 0; k < 8; ++k) state ^= kTables[7 - k][word >> (8 * k) & 255];
  }
  for (; bytes > 0; ++p, --bytes) state = state >> 8 ^ kTables[0][(state ^ *p) & 255];
  return state;
}

#if defined(__x86_64__)

// x^n modulo the polynomial, its coefficients reflected.
constexpr std::uint64_t power_of_x(int n) {
  std::uint64_t r = std::uint64_t{1} << 63;
  for (int i = 0; i < n; ++i) r = r & 1 ? r >> 1 ^ kPolynomial : r >> 1;
  return r;
}

using Block = long long __attribute__((vector_size(16)));

// Moves a block of 128 bits forward by so many bits: its two words, the first of which has the
// higher powers, are multiplied by powers of x. A carry-less product of reflected words has one
// factor x less than the product, hence the 1s below.
template <int bits>
__attribute__((target("pclmul,sse2"), always_inline)) inline Block folded(Block block) {
  const Block powers = {static_cast<long long>(power_of_x(bits + 64 - 1)),
                        static_cast<long long>(power_of_x(bits - 1))};
  return __builtin_ia32_pclmulqdq128(block, powers, 0x00) ^
         __builtin_ia32_pclmulqdq128(block, powers, 0x11);
}

// Folds four blocks side by side (Gopal et al., "Fast CRC Computation for Generic Polynomials Using
// PCLMULQDQ", Intel 2009). The last block has the message's remainder, so that tables end it.
__attribute__((target("pclmul,sse2"))) std::uint64_t by_folding(const unsigned char*& p,
                                                                std::size_t& bytes,
                                                                std::uint64_t state) {
  const auto load = [](const unsigned char* at) __attribute__((always_inline)) {
    Block b;
    std::memcpy(&b, at, sizeof b);
    return b;
  };
  Block a = load(p), b = load(p + 16), c = load(p + 32), d = load(p + 48);
  a ^= Block{static_cast<long long>(state), 0};
  for (p += 64, bytes -= 64; bytes >= 64; p += 64, bytes -= 64) {
    a = folded<512>(a) ^ load(p);
    b = folded<512>(b) ^ load(p + 16);
    c = folded<512>(c) ^ load(p + 32);
    d = folded<512>(d) ^ load(p + 48);
  }
  d ^= folded<384>(a) ^ folded<256>(b) ^ folded<128>(c);
  unsigned char last[16];
  std::memcpy(last, &d, sizeof last);
  return by_tables(last, sizeof last, 0);
}

bool can_fold() {
  static const bool can = __builtin_cpu_supports("pclmul");
  return can;
}

#endif

}  // namespace

std::uint64_t crc64(const void* data, std::size_t bytes, std::uint64_t crc) {
  auto* p = static_cast<const unsigned char*>(data);
  std::uint64_t state = ~crc;
#if defined(__x86_64__)
  if (bytes >= 256 && can_fold()) state = by_folding(p, bytes, state);
#endif
  return ~by_tables(p, bytes, state);
}

}  // namespace troupe
