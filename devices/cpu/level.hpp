// The kernels that are compiled once per x86-64 level, as a table of function pointers.
//
//   const LevelKernels& k = level_kernels(cpu_level());
//   k.op[int(ScalarOp::add)][int(DType::f32)](out, a, b, nullptr, n);
//
// Files in levels/ fill the table; they see raw pointers only and use no std templates, so that no
// weak symbol compiled for one level can be linked into another (scripts/cmake/check_levels.sh).
#pragma once

#include <cstddef>
#include <cstdint>

#include <troupe/devices/base/dtype.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/recurrent_cell.hpp>
#include <troupe/devices/scalar/scalar_op.hpp>

namespace troupe {

namespace detail {

enum class CpuLevel : std::uint8_t;

}  // namespace detail

namespace cpu {

/// dst[i] = f(a[i], b[i], c[i]) for i < n. Buffers are readable and writable up to n rounded up to
/// kPad elements, and lanes from n on may hold anything. dst may be an operand of the same element
/// size. An element's result depends on its operands alone, never on i or n.
using TileFunction = void (*)(void* dst, const void* a, const void* b, const void* c,
                              std::int64_t n);
inline constexpr int kPad = 16;

/// c[m, n] = a · b in row-major memory; the strides step one row (rs) and one column (cs).
struct GemmCall {
  std::int64_t m, n, k;
  const void* a;
  std::int64_t a_rs, a_cs;
  const void* b;
  std::int64_t b_rs, b_cs;
  void* c;
  std::int64_t c_rs;
};

/// Back through rows that were brought to mean 0 and variance 1 (row_norm.hpp); dscale and dbias
/// [n] are added to.
struct RowNormBack {
  std::int64_t rows, n;
  const float *x, *dy;       // [rows, n]
  float* dx;                 // [rows, n]; may be dy
  const float *mean, *rstd;  // [rows]; without a mean: not centered
  const float* scale;        // [n]
  double *dscale, *dbias;    // dbias may be null
};

/// One step of a block of rows through a recurrent layer; n is units times gates. Rows that are not
/// active keep their state.
template <class T>
struct RecurrentStep {
  RecurrentCell cell;
  std::int64_t rows, units;
  const bool* active;             // [rows]; null: all are
  const T* weights;               // [units, n]; f32: packed
  const T *projected, *bias, *h;  // [rows, n], [n], [rows, units]
  T *next, *y;                    // [rows, units]: the state after, and the same or zero
  T* c;                           // [rows, units], an LSTM's cell before, then after
  T *gates, *kept;                // [rows, n], may be projected; [rows, units]
};

/// Back through it, but for the product.
template <class T>
struct RecurrentBack {
  RecurrentCell cell;
  std::int64_t rows, units;
  const bool* active;
  const T *gates, *kept, *dy;
  const T* const* before;  // [rows]: an LSTM's cell, a GRU's state before
  // [rows, units]: for the state after; then for the state before, without the part through h R
  T *dh, *dc;
  T *dprojected, *dq;  // [rows, n], may be gates; for h R: equal to dprojected except in a GRU
};

/// c[r] += a[r] b for active rows, b [k, n] packed.
struct AddProduct {
  std::int64_t rows, n, k;
  const bool* active;
  const float* a;  // [rows, k]
  const float* weights;
  float* c;  // [rows, n]
};

/// c [m, n] = a b, or c += a b if `adds`, for one panel of b, which has `n` columns. If a is packed
/// its strides are not used.
struct PanelProduct {
  std::int64_t m, n, k;
  const float* a;
  bool packed;
  std::int64_t a_rs, a_cs;  // one of them is 1
  const float* panel;
  std::int64_t panel_rs;  // product_columns if the panel is packed
  float* c;
  std::int64_t c_rs;
  bool adds;
};

struct LevelKernels {
  TileFunction op[kScalarOps][kDTypes];  // by operand dtype; null where the op has no such dtype
  TileFunction cast[kDTypes][kDTypes];   // [to][from]

  // Contiguous rows of n: 32 lanes added in a fixed order. f32 is added in double; from n = 128 on,
  // groups of four or eight are first added in float, unless they overflow.
  double (*sum_f32)(const float* x, std::int64_t n);
  /// Sums each of `rows` rows of n, whose first elements are `stride` apart; bit for bit as
  /// sum_f32.
  void (*sums_f32)(double* sums, const float* x, std::int64_t rows, std::int64_t stride,
                   std::int64_t n);
  double (*sum_f64)(const double* x, std::int64_t n);
  // the largest number, as if NaN were not there; -inf if there is none
  float (*top_f32)(const float* x, std::int64_t n);
  /// acc[j] += x[r * stride + j] over the rows in order; of f32 eight are added in float first,
  /// unless these overflow.
  void (*add_rows_f32)(double* acc, const float* x, std::int64_t rows, std::int64_t stride,
                       std::int64_t n);
  void (*add_rows_f64)(double* acc, const double* x, std::int64_t rows, std::int64_t stride,
                       std::int64_t n);
  /// out[i] = exp(x[i] - shift), returning their sum as sum_f32 takes it; no x is far above shift;
  /// out may be null, or x.
  double (*exp_sum_f32)(float* out, const float* x, float shift, std::int64_t n);
  /// out[i] = (x[i] - shift) * scale.
  void (*shift_scale_f32)(float* out, const float* x, float shift, float scale, std::int64_t n);

  /// to[i] += from[i].
  void (*add_f32)(float* to, const float* from, std::int64_t n);
  /// dp[i] = p[i] * ((dp[i] - mean) * scale): through a softmax p, whose p dp add up to `mean`.
  void (*softmax_back_f32)(float* dp, const float* p, float mean, float scale, std::int64_t n);

  /// The sum and the sum of squares of x - x[0], n > 0, added as in sum_f32.
  void (*moments_f32)(const float* x, std::int64_t n, double* sum, double* squares);
  /// The sum of squares of x, added as in sum_f32.
  double (*squares_f32)(const float* x, std::int64_t n);
  /// y[i] = (x[i] - mean) * rstd * scale[i] + bias[i]; without a bias, x[i] * rstd * scale[i]. y
  /// may be x.
  void (*normalize_f32)(float* y, const float* x, float mean, float rstd, const float* scale,
                        const float* bias, std::int64_t n);
  void (*norm_back_f32)(const RowNormBack&);
  /// Over the rows of x [rows, n]: sum[j] += w and product[j] += w * (x - center[j]), with w of dy,
  /// or without one of x - center[j]. Four rows in float.
  void (*column_sums_f32)(const float* x, const float* dy, const float* center, std::int64_t rows,
                          std::int64_t n, double* sum, double* product);

  // Pooling at one position: `taps` are the n > 0 rows of channels that its window holds, `to` and
  // `from` such rows elsewhere.
  void (*pool_max_f32)(float* y, const float* const* taps, int n, std::int64_t channels);
  void (*pool_max_add_f32)(float* const* to, const float* const* taps, int n, const float* dy,
                           std::int64_t channels);
  void (*pool_max_at_f32)(float* y, const float* const* from, const float* const* taps, int n,
                          std::int64_t channels);
  void (*pool_mean_f32)(float* y, const float* const* taps, int n, std::int64_t channels);
  void (*pool_mean_add_f32)(float* const* to, int n, const float* dy, std::int64_t channels);

  // Recurrent layers. Packed weights [k, n] are panels of `across` packets of columns: all rows of
  // one, then of the next, columns past n zero. A panel of gates holds a packet of units of each
  // gate, another `across` = recurrent_packets packets in a row.
  std::int64_t recurrent_packet, recurrent_packets;
  void (*recurrent_step_f32)(const RecurrentStep<float>&);
  void (*recurrent_back_f32)(const RecurrentBack<float>&);
  void (*add_product_f32)(const AddProduct&);

  // Products in tiles that stay in registers (tile_product.hpp); of v4, where the library's are
  // faster, null. Packed columns of b are panels of `product_columns`, packed rows of a strips of a
  // few rows.
  std::int64_t product_columns;
  void (*pack_rows_f32)(const float* a, std::int64_t a_rs, std::int64_t a_cs, std::int64_t m,
                        std::int64_t k, float* strips);
  /// k rows of the first n <= product_columns columns of b, as one panel; columns past n are zero.
  void (*pack_columns_f32)(const float* b, std::int64_t b_rs, std::int64_t b_cs, std::int64_t k,
                           std::int64_t n, float* panel);
  void (*multiply_panel_f32)(const PanelProduct&);

  // By dtype, null but for integers, which wrap: of a row, and acc[j] += x[r * stride + j].
  std::uint64_t (*sum_int[kDTypes])(const void* x, std::int64_t n);
  std::uint64_t (*product_int[kDTypes])(const void* x, std::int64_t n);
  void (*add_rows_int[kDTypes])(std::uint64_t* acc, const void* x, std::int64_t rows,
                                std::int64_t stride, std::int64_t n);
  double (*product_f32)(const float* x, std::int64_t n);  // in double, in the order of sum_f64
  double (*product_f64)(const double* x, std::int64_t n);
  void (*multiply_rows_f32)(double* acc, const float* x, std::int64_t rows, std::int64_t stride,
                            std::int64_t n);
  void (*multiply_rows_f64)(double* acc, const double* x, std::int64_t rows, std::int64_t stride,
                            std::int64_t n);
  // The smallest [0] and the largest [1] of f32, f64 and integers: of a row of n > 0, and best[j]
  // of itself and x[r * stride + j]. NaN wins.
  void (*extremum[2][kDTypes])(const void* x, std::int64_t n, void* best);
  void (*extremum_rows[2][kDTypes])(void* best, const void* x, std::int64_t rows,
                                    std::int64_t stride, std::int64_t n);

  /// Philox of the blocks from `block` on, four words each, for a key of three words.
  void (*philox)(std::uint32_t* words, const std::uint32_t* key, std::uint64_t block,
                 std::int64_t blocks);
  void (*uniform_f32)(float* out, const std::uint32_t* words, std::int64_t n);
  void (*normal_f32)(float* out, const std::uint32_t* words, std::int64_t n);  // n is even

  void (*gemm_f32)(const GemmCall&);
  void (*gemm_f64)(const GemmCall&);
  void (*gemm_int[kDTypes])(const GemmCall&);  // null but for integers
};

/// The table of one level, which this processor must support.
const LevelKernels& level_kernels(CpuLevel level);
/// The table of `cpu_level()`.
const LevelKernels& level_kernels();

// Each file of levels/ fills its part, once per level.
#define TROUPE_LEVEL_PARTS(level)                \
  void fill_arithmetic_##level(LevelKernels&);   \
  void fill_functions_##level(LevelKernels&);    \
  void fill_casts_##level(LevelKernels&);        \
  void fill_rows_##level(LevelKernels&);         \
  void fill_row_norm_##level(LevelKernels&);     \
  void fill_pool_##level(LevelKernels&);         \
  void fill_recurrent_##level(LevelKernels&);    \
  void fill_gemm_##level(LevelKernels&);         \
  void fill_products_##level(LevelKernels&);     \
  void fill_integer_gemm_##level(LevelKernels&); \
  void fill_reductions_##level(LevelKernels&);   \
  void fill_random_##level(LevelKernels&);
TROUPE_LEVEL_PARTS(portable)
TROUPE_LEVEL_PARTS(v2)
TROUPE_LEVEL_PARTS(v3)
TROUPE_LEVEL_PARTS(v4)
#undef TROUPE_LEVEL_PARTS

}  // namespace cpu
}  // namespace troupe
