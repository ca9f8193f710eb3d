// Kernels of layers, under the contract of kernels.hpp. Floating dtypes are f16, bf16, f32 and f64
// if nothing else is said; f16 and bf16 are computed in f32. Scratch memory has the size that the
// function of that name returns.
#pragma once

#include <troupe/devices/cuda/kernels/kernels.hpp>

namespace troupe::cuda {

// ---- rows of n elements

/// out = the softmax of each row of in, or its logarithm.
cudaError_t softmax(cudaStream_t, DType, const void* in, void* out, std::int64_t rows,
                    std::int64_t n, bool is_log);
/// loss[r] = -log softmax(logits[r])[labels[r]]. A label outside of [0, n) is recorded, and its
/// row is not written.
cudaError_t cross_entropy(cudaStream_t, DType, const void* logits, const void* labels, bool are_i64,
                          void* loss, std::int64_t rows, std::int64_t n, IndexRecord* record);
/// out[r, c] = (softmax(logits[r])[c] - (c == labels[r])) * scale[r]; labels as above.
cudaError_t cross_entropy_gradient(cudaStream_t, DType, const void* logits, const void* labels,
                                   bool are_i64, const void* scale, void* out, std::int64_t rows,
                                   std::int64_t n, IndexRecord* record);

/// Memory of RowNormArgs: mean and rstd f32, f64 for f64; bias and mean null if not centered.
struct RowNormMemory {
  const void *x, *scale, *bias;
  bool is_one_scale, is_one_bias;  // one element for all columns
  void *y, *mean, *rstd;
};
cudaError_t row_norm(cudaStream_t, DType, const RowNormMemory&, std::int64_t rows, std::int64_t n,
                     double epsilon, bool is_centered);
/// Memory of RowNormGradientArgs; mean and dbias null if not centered.
struct RowNormBackMemory {
  const void *x, *scale, *mean, *rstd, *dy;
  bool is_one_scale;
  void *dx, *dscale, *dbias;
};
std::size_t row_norm_gradient_scratch(std::int64_t rows, std::int64_t n);
cudaError_t row_norm_gradient(cudaStream_t, DType, const RowNormBackMemory&, std::int64_t rows,
                              std::int64_t n, void* scratch);

std::size_t channel_sums_scratch(std::int64_t outer, std::int64_t rows, std::int64_t n);
/// As ChannelSumsArgs has it, x of f32 or f64; dy and mean null: the moments of x.
cudaError_t channel_sums(cudaStream_t, DType, const void* x, const void* dy, const void* mean,
                         double* first, double* second, std::int64_t outer, std::int64_t rows,
                         std::int64_t n, void* scratch);

// ---- windows over [batch, space..., channels]

/// One axis of WindowAxis.
struct WindowSpan {
  std::int64_t in, out, size, stride, dilation, before;
};
struct WindowShape {
  WindowSpan axis[3];
  std::int64_t batch, channels;

  __host__ __device__ std::int64_t inputs() const { return axis[0].in * axis[1].in * axis[2].in; }
  __host__ __device__ std::int64_t outputs() const {
    return axis[0].out * axis[1].out * axis[2].out;
  }
  __host__ __device__ std::int64_t taps() const {
    return axis[0].size * axis[1].size * axis[2].size;
  }
};
enum class PoolOp : std::uint8_t { max, max_gradient, max_at, mean, mean_gradient };
std::size_t pool_scratch(PoolOp, const WindowShape&);
/// As PoolArgs has it; real dtypes, integers for maxima alone.
cudaError_t pool(cudaStream_t, PoolOp, DType, const void* x, const void* other, void* out,
                 const WindowShape&, void* scratch);

/// columns[n, position, tap, channel] = x[n, where the tap is, channel], zeros for padding: a
/// convolution is then a product. Moves elements by their size.
cudaError_t unfold(cudaStream_t, int element_bytes, const void* x, void* columns,
                   const WindowShape&);
/// x[n, p, channel] = the sum of the columns that unfold takes from there, in double.
cudaError_t fold(cudaStream_t, DType, const void* columns, void* x, const WindowShape&);

enum class ConvolveOp : std::uint8_t { output, input, filter };
/// As ConvolveArgs has it, element by element, with double or 64-bit sums: for groups and integers.
/// shape.channels: of x.
cudaError_t convolve(cudaStream_t, ConvolveOp, DType, const void* a, const void* b, void* out,
                     const WindowShape& shape, std::int64_t filters, std::int64_t groups);

/// out [m, n] = a b of integers, which wrap; a [m, k] or [k, m], b [k, n] or [n, k]; `batch` of
/// them, strides in elements. All of one dtype; or a of i8 or u8, b of i8, out of i32.
struct IntegerProduct {
  DType a, b, out;
  std::int64_t m, n, k, batch;
  bool transpose_a, transpose_b;
  std::int64_t a_stride, b_stride, out_stride;
};
cudaError_t integer_product(cudaStream_t, const void* a, const void* b, void* out,
                            const IntegerProduct&);

// ---- attention: scores [rows, keys], of f32, or f64 for f64

/// A mask over [batch, heads, queries, keys]; a step is 0 where one element stands for all.
struct MaskView {
  const void* data;  // null: none
  bool is_boolean;   // true: visible; else added, of the dtype of q
  std::int64_t batch, head, query, key;
};
struct ScoreShape {
  std::int64_t heads, queries, keys;
  std::int64_t first;  // row of [batch, heads, queries] that the scores begin with
  std::int64_t rows;
  double scale;
  bool is_causal;
};
/// probabilities = the softmax of scores * scale + mask, in q's dtype; a row without visible keys
/// gets zeros. log_sum of f32, or f64: the logarithm of each denominator.
cudaError_t attend(cudaStream_t, DType, const void* scores, void* probabilities, void* log_sum,
                   const MaskView&, const ScoreShape&);
/// From scores and dp = dy v^T, both of f32, or f64 for f64: probabilities as above; dp = the
/// gradient of the masked scores, probabilities * (dp - the row's sum of y dy); and ds = dp * scale
/// in q's dtype.
cudaError_t attend_back(cudaStream_t, DType, const void* scores, void* dp, void* probabilities,
                        void* ds, const void* y, const void* dy, std::int64_t width,
                        const MaskView&, const ScoreShape&);

// ---- recurrent layers: f32 and f64

enum class CellOp : std::uint8_t { lstm, gru, tanh, relu };
/// One step: gates from `projected` + bias and q = h R, [batch, gates * units] each. h is the state
/// before, `next` the one after; c is updated; lengths null: the time counts for all.
struct CellStep {
  CellOp cell;
  std::int64_t batch, units, time;
  const void* lengths;
  bool are_i64;
  const void *projected, *bias, *q, *h;
  void *next, *y, *c, *gates, *kept;
};
cudaError_t recurrent_step(cudaStream_t, DType, const CellStep&);
/// One step back, at `time` of all_time. dh and dc: of the state after the step, then of the state
/// before it, without the part through h R, whose gradient is of_product for a GRU, else
/// dprojected. `state` gets the state before the step, zeros where the time does not count.
struct CellBack {
  CellOp cell;
  std::int64_t batch, units, time, all_time;
  bool is_reverse;
  const void* lengths;
  bool are_i64;
  const void *h0, *c0, *y, *gates, *kept, *dy;      // y to dy: of all times; c0, kept may be null
  void *dh, *dc, *dprojected, *of_product, *state;  // the last three: of this time
};
cudaError_t recurrent_back(cudaStream_t, DType, const CellBack&);
/// dh += part, [batch, units] each, where the time of `step` counts.
cudaError_t add_product(cudaStream_t, DType, void* dh, const void* part, const CellBack& step);

/// out = in of another real floating dtype, rounded once.
cudaError_t convert(cudaStream_t, DType from, const void* in, DType to, void* out, std::int64_t n);

}  // namespace troupe::cuda
