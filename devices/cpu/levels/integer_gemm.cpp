// Matrix products of integers, which wrap: four rows of the result at a time, a piece of each in
// registers.
#include <troupe/devices/cpu/levels/packet.hpp>

namespace troupe::cpu {
namespace {

constexpr std::int64_t kRows = 4;

typedef std::uint64_t Words __attribute__((vector_size(kPacketBytes)));

/// x y of 64 bits whose upper halves only repeat the sign: one instruction, where products of all
/// bits take several.
inline Words product_of_halves(Words x, Words y) {
#if defined(__AVX512F__)
  return reinterpret_cast<Words>(
      _mm512_mul_epi32(reinterpret_cast<__m512i>(x), reinterpret_cast<__m512i>(y)));
#elif defined(__AVX2__)
  return reinterpret_cast<Words>(
      __builtin_ia32_pmuldq256(reinterpret_cast<Ints>(x), reinterpret_cast<Ints>(y)));
#elif defined(__SSE4_1__)
  return reinterpret_cast<Words>(
      __builtin_ia32_pmuldq128(reinterpret_cast<Ints>(x), reinterpret_cast<Ints>(y)));
#else
  return x * y;
#endif
}

/// Are they all so small?
bool are_halves(const std::uint64_t* x, std::int64_t rows, std::int64_t row_step,
                std::int64_t columns, std::int64_t column_step) {
  std::uint64_t above = 0;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      above |= (x[i * row_step + j * column_step] + 0x80000000u) >> 32;
  return above == 0;
}

template <class T, bool of_halves = false>
void gemm(const GemmCall& g) {
  typedef T Packet __attribute__((vector_size(kPacketBytes)));
  constexpr std::int64_t width = kPacketBytes / static_cast<std::int64_t>(sizeof(T)), kAcross = 2,
                         piece = kAcross * width, kDeep = 128;
  const T* a = static_cast<const T*>(g.a);
  const T* b = static_cast<const T*>(g.b);
  T* c = static_cast<T*>(g.c);
  for (std::int64_t i = 0; i < g.m; ++i)
    __builtin_memset(c + i * g.c_rs, 0, static_cast<std::size_t>(g.n) * sizeof(T));
  T panel[kDeep * piece];  // part of b, padded with zeros
  for (std::int64_t k0 = 0; k0 < g.k; k0 += kDeep) {
    const std::int64_t depth = g.k - k0 < kDeep ? g.k - k0 : kDeep;
    for (std::int64_t j = 0; j < g.n; j += piece) {
      const std::int64_t columns = g.n - j < piece ? g.n - j : piece;
      for (std::int64_t k = 0; k < depth; ++k)
        for (std::int64_t l = 0; l < piece; ++l)
          panel[k * piece + l] = l < columns ? b[(k0 + k) * g.b_rs + (j + l) * g.b_cs] : T(0);
      for (std::int64_t i = 0; i < g.m; i += kRows) {
        Packet sum[kRows][kAcross] = {};
        const T* row[kRows];  // rows of a; the last is repeated if there are fewer
        for (std::int64_t r = 0; r < kRows; ++r)
          row[r] = a + (i + r < g.m ? i + r : g.m - 1) * g.a_rs + k0 * g.a_cs;
        for (std::int64_t k = 0; k < depth; ++k) {
          Packet y[kAcross];
          __builtin_memcpy(y, panel + k * piece, sizeof y);
          for (std::int64_t r = 0; r < kRows; ++r) {
            const Packet x = Packet{} + row[r][k * g.a_cs];
            for (std::int64_t p = 0; p < kAcross; ++p) {
              if constexpr (of_halves) sum[r][p] += product_of_halves(x, y[p]);
              else sum[r][p] += x * y[p];
            }
          }
        }
        for (std::int64_t r = 0; r < kRows && i + r < g.m; ++r) {
          T* to = c + (i + r) * g.c_rs + j;
          T found[piece];
          __builtin_memcpy(found, sum[r], sizeof found);
          for (std::int64_t l = 0; l < columns; ++l) to[l] = static_cast<T>(to[l] + found[l]);
        }
      }
    }
  }
}

void gemm_of_words(const GemmCall& g) {
  constexpr std::int64_t kWorthALook = 8;  // rows and columns
  const auto *a = static_cast<const std::uint64_t*>(g.a),
             *b = static_cast<const std::uint64_t*>(g.b);
  if (g.m >= kWorthALook && g.n >= kWorthALook && are_halves(a, g.m, g.a_rs, g.k, g.a_cs) &&
      are_halves(b, g.k, g.b_rs, g.n, g.b_cs))
    return gemm<std::uint64_t, true>(g);
  gemm<std::uint64_t>(g);
}

}  // namespace

void TROUPE_FILL(integer_gemm)(LevelKernels& k) {
  k.gemm_int[int(DType::i8)] = k.gemm_int[int(DType::u8)] = gemm<std::uint8_t>;
  k.gemm_int[int(DType::i16)] = k.gemm_int[int(DType::u16)] = gemm<std::uint16_t>;
  k.gemm_int[int(DType::i32)] = k.gemm_int[int(DType::u32)] = gemm<std::uint32_t>;
  k.gemm_int[int(DType::i64)] = k.gemm_int[int(DType::u64)] = gemm_of_words;
}

}  // namespace troupe::cpu
