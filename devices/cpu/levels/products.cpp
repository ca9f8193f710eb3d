// f32 products: a tile of rows times a panel of columns stays in registers.
//
// An element is the sum over k in order, multiply-adds fused where the level has them, whatever
// tile it falls into.
#include <troupe/devices/cpu/levels/multiply_add.hpp>

namespace troupe::cpu {
#if defined(__AVX512F__)
// With 512 bits oneDNN reaches 0.82 to 0.92 of the multiply-add peak; own tiles gained nothing
// there (RESULTS.md).
void TROUPE_FILL(products)(LevelKernels&) {}
#else
namespace {

// sums take 12 of 16 registers; the other four hold b, a and their products
constexpr int kAcross = 2, kMostRows = 6, kColumns = kAcross * kPacket;

typedef float Four __attribute__((vector_size(16)));
TROUPE_INLINE Four load_four(const float* x) {
  Four v;
  __builtin_memcpy(&v, x, sizeof v);
  return v;
}
TROUPE_INLINE void store_four(float* to, Four v) { __builtin_memcpy(to, &v, sizeof v); }

/// Four lanes of four, as they lie, become four rows of four.
TROUPE_INLINE void turn(const float* from, std::int64_t lane_step, float* to, std::int64_t width) {
  const Four a = load_four(from), b = load_four(from + lane_step),
             c = load_four(from + 2 * lane_step), d = load_four(from + 3 * lane_step);
  const Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5),
             cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Four ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7),
             cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  store_four(to, __builtin_shufflevector(ab, cd, 0, 1, 4, 5));
  store_four(to + width, __builtin_shufflevector(ab, cd, 2, 3, 6, 7));
  store_four(to + 2 * width, __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5));
  store_four(to + 3 * width, __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7));
}

// Lanes in fours, the last of which lies over the one before it.
template <class F>
TROUPE_INLINE void in_fours(std::int64_t lanes, F f) {
  for (std::int64_t l = 0; l + 4 <= lanes; l += 4) f(l);
  if (lanes % 4 != 0) f(lanes - 4);
}

// rows of a matrix lie a page apart, where no hardware foresees the next
constexpr std::int64_t kRowsAhead = 16;

// `lanes` vectors of k, side by side in packs of `width`, which is a constant where this is
// inlined: to[i * width + l] = from[l * lane_step + i * k_step], zero from `lanes` on. One of the
// steps is 1.
TROUPE_INLINE void pack(const float* from, std::int64_t lane_step, std::int64_t k_step,
                        std::int64_t lanes, std::int64_t k, float* to, std::int64_t width) {
  std::int64_t i = 0;
  if (lanes == width && lanes >= 4) {
    if (lane_step == 1)
      for (; i < k; ++i) {
        __builtin_prefetch(from + (i + kRowsAhead) * k_step);
        if (width % kPacket == 0)
          for (std::int64_t l = 0; l < width; l += kPacket)
            store(to + i * width + l, load_floats(from + i * k_step + l));
        else
          in_fours(width, [&](std::int64_t l) {
            store_four(to + i * width + l, load_four(from + i * k_step + l));
          });
      }
    else
      for (; i + 4 <= k; i += 4)
        in_fours(width, [&](std::int64_t l) {
          turn(from + l * lane_step + i, lane_step, to + i * width + l, width);
        });
  }
  for (; i < k; ++i)
    for (std::int64_t l = 0; l < width; ++l)
      to[i * width + l] = l < lanes ? from[l * lane_step + i * k_step] : 0.f;
}

void pack_rows(const float* a, std::int64_t a_rs, std::int64_t a_cs, std::int64_t m, std::int64_t k,
               float* strips) {
  for_tiles<kMostRows>(m, [&]<int rows>(Count<rows>, std::int64_t row) {
    pack(a + row * a_rs, a_rs, a_cs, rows, k, strips + row * k, rows);
  });
}

void pack_columns(const float* b, std::int64_t b_rs, std::int64_t b_cs, std::int64_t k,
                  std::int64_t n, float* panel) {
  pack(b, b_cs, b_rs, n, k, panel, kColumns);
}

template <int rows>
TROUPE_INLINE void store_tile(const PanelProduct& p, Floats (&sum)[rows][kAcross], float* to) {
  if (p.n == kColumns) {
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
      for (int q = 0; q < kAcross; ++q) {
        float* at = to + r * p.c_rs + q * kPacket;
        store(at, p.adds ? load_floats(at) + sum[r][q] : sum[r][q]);
      }
    return;
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int q = 0; q < kAcross; ++q) {
      const std::int64_t there = p.n - q * kPacket, n = there < kPacket ? there : kPacket;
      if (n <= 0) continue;
      float* at = to + r * p.c_rs + q * kPacket;
      store_part<false>(at, p.adds ? load_part<false>(at, n) + sum[r][q] : sum[r][q], n);
    }
}

template <int rows>
void multiply_tile(const PanelProduct& p, std::int64_t row) {
  Floats sum[rows][kAcross];
  float* const to = p.c + row * p.c_rs;
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
    __builtin_prefetch(to + r * p.c_rs, 1);
    __builtin_prefetch(to + r * p.c_rs + kColumns - 1, 1);
  }
  if (p.packed) multiply(sum, p.a + row * p.k, 1, rows, p.panel, p.k, p.panel_rs);
  else if (p.a_cs == 1) multiply(sum, p.a + row * p.a_rs, p.a_rs, 1, p.panel, p.k, p.panel_rs);
  else multiply(sum, p.a + row, 1, p.a_cs, p.panel, p.k, p.panel_rs);
  store_tile(p, sum, to);
}

void multiply_panel(const PanelProduct& p) {
  for_tiles<kMostRows>(
      p.m, [&]<int rows>(Count<rows>, std::int64_t row) { multiply_tile<rows>(p, row); });
}

}  // namespace

void TROUPE_FILL(products)(LevelKernels& k) {
  k.product_columns = kColumns;
  k.pack_rows_f32 = pack_rows;
  k.pack_columns_f32 = pack_columns;
  k.multiply_panel_f32 = multiply_panel;
}
#endif

}  // namespace troupe::cpu
