// Primitives over matrix products: products themselves, convolutions, attention and recurrent
// layers. A library has the products (libraries/blas.hpp), kernels/nn.hpp what lies between them.
#include <troupe/devices/cuda/primitives.hpp>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include <troupe/devices/cuda/kernels/nn.hpp>
#include <troupe/devices/cuda/primitive_call.hpp>
#include <troupe/devices/cuda/windows.hpp>
#include <troupe/devices/device/attention.hpp>
#include <troupe/devices/device/recurrent.hpp>

namespace troupe::cuda {
namespace {

static_assert(are_alike(CellOp::lstm, RecurrentCell::lstm) &&
              are_alike(CellOp::relu, RecurrentCell::relu));

// Scores and columns are made for so many bytes at a time.
constexpr std::int64_t kMostBytes = std::int64_t{512} << 20;

// How many of `all` items of `bytes` each are taken at a time.
std::int64_t items_at_once(std::int64_t all, std::int64_t bytes) {
  return std::clamp<std::int64_t>(kMostBytes / std::max<std::int64_t>(1, bytes), 1,
                                  std::max<std::int64_t>(1, all));
}

DType accumulator_of(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

const std::byte* bytes_at(const void* data, std::int64_t element, DType dtype) {
  return static_cast<const std::byte*>(data) + element * static_cast<std::int64_t>(size_of(dtype));
}
std::byte* bytes_at(void* data, std::int64_t element, DType dtype) {
  return static_cast<std::byte*>(data) + element * static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace

// ---- matrix products

bool has_product(DType dtype) { return is_floating(dtype) || is_complex(dtype); }

Blas& CudaPrimitives::blas() const {
  std::call_once(blas_made_, [this] { blas_ = make_blas(tf32_); });
  return *blas_;
}

namespace {

// A product as bytes, without the gaps of BlasProduct.
struct ProductBytes {
  Blas* blas;
  void* workspace;
  const void *a, *b;
  void* out;
  std::int64_t m, n, k, batch, a_stride, b_stride, out_stride;
  std::int32_t dtype, out_dtype, transpose_a, transpose_b;

  static cudaError_t issue(const unsigned char* bytes, cudaStream_t stream) {
    ProductBytes x;
    std::memcpy(&x, bytes, sizeof x);
    BlasProduct p{};
    p.dtype = static_cast<DType>(x.dtype), p.out_dtype = static_cast<DType>(x.out_dtype);
    p.m = x.m, p.n = x.n, p.k = x.k, p.batch = x.batch;
    p.a = x.a, p.b = x.b, p.out = x.out;
    p.transpose_a = x.transpose_a != 0, p.transpose_b = x.transpose_b != 0;
    p.a_stride = x.a_stride, p.b_stride = x.b_stride, p.out_stride = x.out_stride;
    return x.blas->multiply(stream, p, x.workspace);
  }
};
static_assert(std::has_unique_object_representations_v<ProductBytes>);

}  // namespace

void CudaPrimitives::multiply(PrimitiveCall& call, const BlasProduct& p) const {
  if (p.m * p.n * p.batch == 0) return;
  if (p.k == 0) return call.clear(View(p.out, p.out_dtype, Shape{p.batch, p.m, p.n}));
  const ProductBytes bytes{&blas(),
                           call.workspace(blas().workspace_bytes()),
                           p.a,
                           p.b,
                           p.out,
                           p.m,
                           p.n,
                           p.k,
                           p.batch,
                           p.a_stride,
                           p.b_stride,
                           p.out_stride,
                           static_cast<std::int32_t>(p.dtype),
                           static_cast<std::int32_t>(p.out_dtype),
                           p.transpose_a,
                           p.transpose_b};
  call.check(call.make(bytes), "a matrix product");
}

void CudaPrimitives::matmul(Stream& s, const MatmulArgs& m) const {
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || m.out.elements() == 0) return;
  if (!has(Primitive::matmul, m.out.dtype)) refuse(Primitive::matmul);
  const int rank = m.out.shape.rank(), a_rank = m.a.shape.rank();
  BlasProduct p{};
  p.dtype = p.out_dtype = m.out.dtype;
  p.m = m.out.shape[rank - 2];
  p.n = m.out.shape[rank - 1];
  p.k = m.a.shape[a_rank - (m.transpose_a ? 2 : 1)];
  p.transpose_a = m.transpose_a;
  p.transpose_b = m.transpose_b;
  if (p.k == 0) return call.clear(m.out);
  // The batch axes of both, along the output's: 0 where an operand is the same for all.
  Strides extents{1}, a_strides{}, b_strides{};
  std::size_t axes = 0;
  for (int i = 0; i < rank - 2; ++i) {
    const auto stride = [&](const Shape& shape, std::int64_t matrix) {
      const int at = i - (rank - shape.rank());
      if (at < 0 || shape[at] == 1) return std::int64_t{0};
      return product_of(shape, at + 1, shape.rank() - 2) * matrix;
    };
    if (m.out.shape[i] == 1) continue;
    const std::int64_t a = stride(m.a.shape, p.m * p.k), b = stride(m.b.shape, p.k * p.n);
    if (axes == 0 || a_strides[axes - 1] != a * m.out.shape[i] ||
        b_strides[axes - 1] != b * m.out.shape[i])
      extents[axes++] = 1;
    extents[axes - 1] *= m.out.shape[i];
    a_strides[axes - 1] = a;
    b_strides[axes - 1] = b;
  }
  const std::size_t last = axes > 0 ? axes - 1 : 0;
  p.batch = extents[last];
  p.a_stride = a_strides[last];
  p.b_stride = b_strides[last];
  p.out_stride = p.m * p.n;

  const void *const a = call.data(m.a), *const b = call.data(m.b);
  std::int64_t calls = 1;
  for (std::size_t i = 0; i < last; ++i) calls *= extents[i];
  for (std::int64_t c = 0; c < calls; ++c) {
    std::int64_t rest = c, a_at = 0, b_at = 0;
    for (std::size_t i = last; i-- > 0;) {
      const std::int64_t at = rest % extents[i];
      rest /= extents[i];
      a_at += at * a_strides[i];
      b_at += at * b_strides[i];
    }
    p.a = bytes_at(a, a_at, m.a.dtype);
    p.b = bytes_at(b, b_at, m.b.dtype);
    p.out = bytes_at(m.out.data, c * p.batch * p.out_stride, m.out.dtype);
    if (!is_integer(m.out.dtype)) {
      multiply(call, p);
      continue;
    }
    call.check(
        integer_product(call.stream(), p.a, p.b, p.out,
                        {m.a.dtype, m.b.dtype, m.out.dtype, p.m, p.n, p.k, p.batch, p.transpose_a,
                         p.transpose_b, p.a_stride, p.b_stride, p.out_stride}),
        "a product of integers");
  }
}

// ---- convolutions

// As products with columns (kernels/nn.hpp), where every window's elements lie in a row; for many
// items, in parts. Windows of one element have their columns already.
void CudaPrimitives::convolve_as_product(PrimitiveCall& call, const ConvolveArgs& c) const {
  const DType dtype = c.out.dtype;
  WindowShape shape = shape_of(c.windows, c.batch, c.channels);
  const std::int64_t positions = shape.outputs(), depth = shape.taps() * c.channels,
                     in_item = shape.inputs() * c.channels, out_item = positions * c.filters;
  const bool are_columns = has_columns(c.windows);
  const std::int64_t items =
      are_columns
          ? c.batch
          : items_at_once(c.batch, positions * depth * static_cast<std::int64_t>(size_of(dtype)));
  const std::int64_t parts = (c.batch + items - 1) / items;
  const void *const a = call.data(c.a), *const b = call.data(c.b);
  void* const columns =
      are_columns ? nullptr : call.temporary(dtype, Shape{items * positions, depth}).raw_mutable();
  void* const sums = c.what == Convolve::filter && parts > 1
                         ? call.temporary(dtype, Shape{parts, depth, c.filters}).raw_mutable()
                         : nullptr;
  BlasProduct p{};
  p.dtype = p.out_dtype = dtype;
  p.batch = 1;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t first = part * items, count = std::min(items, c.batch - first),
                       rows = count * positions;
    shape.batch = count;
    // The side that has x's shape, and the columns of it.
    const void* folded = columns;
    if (c.what != Convolve::input) {
      const void* const x = bytes_at(a, first * in_item, dtype);
      if (are_columns) folded = x;
      else
        call.check(unfold(call.stream(), PrimitiveCall::element_bytes(dtype), x, columns, shape),
                   "the columns of a convolution");
    }
    if (c.what == Convolve::output) {
      p.m = rows, p.n = c.filters, p.k = depth;
      p.a = folded, p.b = b, p.out = bytes_at(c.out.data, first * out_item, dtype);
    } else if (c.what == Convolve::filter) {
      p.m = depth, p.n = c.filters, p.k = rows, p.transpose_a = true;
      p.a = folded, p.b = bytes_at(b, first * out_item, dtype);
      p.out = sums ? bytes_at(sums, part * depth * c.filters, dtype) : c.out.data;
    } else {
      p.m = rows, p.n = depth, p.k = c.filters, p.transpose_b = true;
      p.a = bytes_at(a, first * out_item, dtype), p.b = b;
      p.out = are_columns ? bytes_at(c.out.data, first * in_item, dtype) : columns;
    }
    multiply(call, p);
    if (c.what == Convolve::input && !are_columns)
      call.check(
          fold(call.stream(), dtype, columns, bytes_at(c.out.data, first * in_item, dtype), shape),
          "the gradient of a convolution");
  }
  if (!sums) return;
  void* const scratch =
      call.scratch(reduce_scratch(ReduceOp::sum, dtype, 1, parts, depth * c.filters));
  call.check(cuda::reduce(call.stream(), ReduceOp::sum, dtype, sums, c.out.data, 1, parts,
                          depth * c.filters, scratch),
             "the gradient of a convolution");
}

// ---- attention

namespace {

// How far apart a mask's elements lie; 0 where it has one for all.
MaskView mask_of(PrimitiveCall& call, const ConstView& mask) {
  MaskView view{};
  if (!mask.data()) return view;
  view.data = call.data(mask);
  view.is_boolean = mask.dtype == DType::boolean;
  const int rank = mask.shape.rank();
  std::int64_t step = 1;
  const auto along = [&](int axis) {
    const std::int64_t own = step;
    step *= mask.shape[axis];
    return mask.shape[axis] == 1 ? 0 : own;
  };
  view.key = along(rank - 1);
  view.query = along(rank - 2);
  if (rank == 4) view.head = along(1);
  if (rank >= 3) view.batch = along(0);
  return view;
}

// Heads that share keys stand in a row: their queries are rows of one product.
struct Attention {
  DType dtype, wide;
  std::int64_t all, rows;  // groups of all items; queries of a group
  explicit Attention(const AttentionArgs& a)
      : dtype(a.q.dtype), wide(accumulator_of(a.q.dtype)), all(a.batch * a.groups),
        rows(a.heads / a.groups * a.queries) {}
  ScoreShape scores(const AttentionArgs& a, std::int64_t first, std::int64_t count) const {
    return {a.heads, a.queries, a.keys, first * rows, count * rows, a.scale, a.causal};
  }
  /// [m, k] by [k, n] for each of `count` groups from `first` on; strides and transpositions follow
  /// from what lies where.
  BlasProduct product(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count) const {
    BlasProduct p{};
    p.dtype = p.out_dtype = dtype;
    p.m = m, p.n = n, p.k = k, p.batch = count;
    p.a_stride = m * k, p.b_stride = k * n, p.out_stride = m * n;
    return p;
  }
};

}  // namespace

void CudaPrimitives::attention(Stream& s, const AttentionArgs& a) const {
  if (!is_floating(a.q.dtype)) refuse_dtype("attention", a.q.dtype);
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || (a.y.elements() == 0 && a.log_sum.elements() == 0)) return;
  const Attention of(a);
  const std::int64_t score_bytes = of.rows * a.keys * static_cast<std::int64_t>(size_of(of.wide)),
                     at_once = items_at_once(of.all, score_bytes);
  const Shape shape{at_once, of.rows, a.keys};
  void* const scores = call.temporary(of.wide, shape).raw_mutable();
  void* const probabilities = call.temporary(of.dtype, shape).raw_mutable();
  const void *const q = call.data(a.q), *const k = call.data(a.k), *const v = call.data(a.v);
  const MaskView mask = mask_of(call, a.mask);
  for (std::int64_t first = 0; first < of.all; first += at_once) {
    const std::int64_t count = std::min(at_once, of.all - first);
    BlasProduct p = of.product(of.rows, a.keys, a.depth, count);
    p.out_dtype = of.wide, p.transpose_b = true;
    p.a = bytes_at(q, first * of.rows * a.depth, of.dtype);
    p.b = bytes_at(k, first * a.keys * a.depth, of.dtype), p.out = scores;
    multiply(call, p);
    call.check(attend(call.stream(), of.dtype, scores, probabilities, a.log_sum.data, mask,
                      of.scores(a, first, count)),
               "attention");
    p = of.product(of.rows, a.width, a.keys, count);
    p.a = probabilities, p.b = bytes_at(v, first * a.keys * a.width, of.dtype);
    p.out = bytes_at(a.y.data, first * of.rows * a.width, of.dtype);
    multiply(call, p);
  }
}

void CudaPrimitives::attention_gradient(Stream& s, const AttentionGradientArgs& g) const {
  const AttentionArgs& a = g.of;
  if (!is_floating(a.q.dtype)) refuse_dtype("attention", a.q.dtype);
  PrimitiveCall call(device_, index_, s);
  if (call.skips()) return;
  if (g.y.elements() == 0 || a.keys == 0) {
    for (const View& v : {g.dq, g.dk, g.dv, g.dmask}) call.clear(v);
    return;
  }
  const Attention of(a);
  const std::int64_t score_bytes = of.rows * a.keys * static_cast<std::int64_t>(size_of(of.wide));
  // The gradient of a mask adds up over items and heads: it needs the gradients of all scores.
  const std::int64_t at_once = g.dmask.data ? of.all : items_at_once(of.all, 2 * score_bytes);
  const Shape shape{at_once, of.rows, a.keys};
  void* const scores = call.temporary(of.wide, shape).raw_mutable();
  void* const dp = call.temporary(of.wide, shape).raw_mutable();
  void* const probabilities = call.temporary(of.dtype, shape).raw_mutable();
  void* const ds = call.temporary(of.dtype, shape).raw_mutable();
  const void *const q = call.data(a.q), *const k = call.data(a.k), *const v = call.data(a.v),
                    *const y = call.data(g.y), *const dy = call.data(g.dy);
  const MaskView mask = mask_of(call, a.mask);
  for (std::int64_t first = 0; first < of.all; first += at_once) {
    const std::int64_t count = std::min(at_once, of.all - first), of_q = first * of.rows * a.depth,
                       of_k = first * a.keys * a.depth, of_v = first * a.keys * a.width,
                       of_y = first * of.rows * a.width;
    BlasProduct p = of.product(of.rows, a.keys, a.depth, count);
    p.out_dtype = of.wide, p.transpose_b = true;
    p.a = bytes_at(q, of_q, of.dtype), p.b = bytes_at(k, of_k, of.dtype), p.out = scores;
    multiply(call, p);
    p = of.product(of.rows, a.keys, a.width, count);
    p.out_dtype = of.wide, p.transpose_b = true;
    p.a = bytes_at(dy, of_y, of.dtype), p.b = bytes_at(v, of_v, of.dtype), p.out = dp;
    multiply(call, p);
    call.check(attend_back(call.stream(), of.dtype, scores, dp, probabilities, ds, y, dy, a.width,
                           mask, of.scores(a, first, count)),
               "the gradient of attention");
    p = of.product(a.keys, a.width, of.rows, count);
    p.transpose_a = true;
    p.a = probabilities, p.b = bytes_at(dy, of_y, of.dtype);
    p.out = bytes_at(g.dv.data, of_v, of.dtype);
    multiply(call, p);
    p = of.product(of.rows, a.depth, a.keys, count);
    p.a = ds, p.b = bytes_at(k, of_k, of.dtype), p.out = bytes_at(g.dq.data, of_q, of.dtype);
    multiply(call, p);
    p = of.product(a.keys, a.depth, of.rows, count);
    p.transpose_a = true;
    p.a = ds, p.b = bytes_at(q, of_q, of.dtype), p.out = bytes_at(g.dk.data, of_k, of.dtype);
    multiply(call, p);
  }
  if (!g.dmask.data) return;
  const std::uint32_t axes = (mask.batch ? 0u : 1u) | (mask.head ? 0u : 2u) |
                             (mask.query ? 0u : 4u) | (mask.key ? 0u : 8u);
  const ConstView all(dp, of.wide, Shape{a.batch, a.heads, a.queries, a.keys});
  const Shape sums{g.dmask.elements()};
  void* const into =
      of.wide == of.dtype ? g.dmask.data : call.temporary(of.wide, sums).raw_mutable();
  if (axes == 0) call.copy(dp, into, all.bytes());
  else reduce(s, Reduction::sum, all, View(into, of.wide, g.dmask.shape), axes);
  if (of.wide != of.dtype)
    call.check(convert(call.stream(), of.wide, into, of.dtype, g.dmask.data, g.dmask.elements()),
               "a conversion");
}

// ---- recurrent layers

namespace {

// f16 and bf16 are computed in f32: operands in f32, and results that go back at the end.
class InF32 {
 public:
  InF32(PrimitiveCall& call, DType dtype)
      : call_(call), dtype_(dtype), wide_(accumulator_of(dtype)) {}

  DType dtype() const { return wide_; }
  const void* in(const ConstView& v) {
    const void* const data = call_.data(v);
    if (!data || v.dtype == wide_ || v.dtype != dtype_) return data;
    void* const to = call_.temporary(wide_, Shape{v.elements()}).raw_mutable();
    call_.check(convert(call_.stream(), dtype_, data, wide_, to, v.elements()), "a conversion");
    return to;
  }
  void* out(const View& v) {
    if (!v.data || v.dtype == wide_) return v.data;
    void* const made = call_.temporary(wide_, Shape{v.elements()}).raw_mutable();
    stores_[count_++] = {made, v};
    return made;
  }
  void store() {
    for (std::size_t i = 0; i < count_; ++i) {
      const auto& [made, v] = stores_[i];
      call_.check(convert(call_.stream(), wide_, made, v.dtype, v.data, v.elements()),
                  "a conversion");
    }
  }

 private:
  PrimitiveCall& call_;
  const DType dtype_, wide_;
  std::array<std::pair<const void*, View>, 8> stores_;
  std::size_t count_ = 0;
};

BlasProduct product_of(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k, const void* a,
                       const void* b, void* out) {
  BlasProduct p{};
  p.dtype = p.out_dtype = dtype;
  p.m = m, p.n = n, p.k = k, p.batch = 1;
  p.a = a, p.b = b, p.out = out;
  return p;
}

}  // namespace

void CudaPrimitives::recurrent(Stream& s, const RecurrentArgs& a) const {
  if (!is_floating(a.projected.dtype)) refuse_dtype("a recurrent layer", a.projected.dtype);
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || a.batch == 0 || a.units == 0) return;
  InF32 as(call, a.projected.dtype);
  const DType dtype = as.dtype();
  const std::int64_t n = a.units * gates_of(a.cell), size = a.batch * a.units;
  const bool is_lstm = a.cell == RecurrentCell::lstm;
  const void *const projected = as.in(a.projected), *const weights = as.in(a.recurrent),
                    *const bias = as.in(a.bias);
  void *const y = as.out(a.y), *const last = as.out(a.h), *const gates = as.out(a.gates),
              *const c = is_lstm ? as.out(a.c) : nullptr, *const kept = a.kept.data;
  const std::size_t state_bytes = static_cast<std::size_t>(size) * size_of(dtype);
  const void* h = as.in(a.h0);
  if (is_lstm) call.copy(as.in(a.c0), c, state_bytes);
  void* const q = call.temporary(dtype, Shape{a.batch, n}).raw_mutable();
  std::array<void*, 2> states{};
  for (void*& state : states) state = call.temporary(dtype, Shape{size}).raw_mutable();
  CellStep step{};
  step.cell = static_cast<CellOp>(a.cell);
  step.batch = a.batch, step.units = a.units;
  step.lengths = a.lengths.data() ? call.data(a.lengths) : nullptr;
  step.are_i64 = a.lengths.dtype == DType::i64;
  step.bias = bias, step.q = q, step.c = c;
  for (std::int64_t i = 0; i < a.time; ++i) {
    const std::int64_t t = a.reverse ? a.time - 1 - i : i;
    multiply(call, product_of(dtype, a.batch, n, a.units, h, weights, q));
    step.time = t;
    step.projected = bytes_at(projected, t * a.batch * n, dtype);
    step.h = h, step.next = states[static_cast<std::size_t>(i % 2)];
    step.y = bytes_at(y, t * size, dtype);
    step.gates = bytes_at(gates, t * a.batch * n, dtype);
    step.kept = kept ? bytes_at(kept, t * size, dtype) : nullptr;
    call.check(recurrent_step(call.stream(), dtype, step), "a step of a recurrent layer");
    h = step.next;
  }
  call.copy(h, last, state_bytes);
  as.store();
}

void CudaPrimitives::recurrent_gradient(Stream& s, const RecurrentGradientArgs& g) const {
  if (!is_floating(g.recurrent.dtype)) refuse_dtype("a recurrent layer", g.recurrent.dtype);
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || g.units == 0) return;
  InF32 as(call, g.recurrent.dtype);
  const DType dtype = as.dtype();
  const std::int64_t n = g.units * gates_of(g.cell), size = g.batch * g.units,
                     rows = g.time * g.batch;
  const bool is_lstm = g.cell == RecurrentCell::lstm, is_gru = g.cell == RecurrentCell::gru;
  const void* const weights = as.in(g.recurrent);
  void* const dprojected = as.out(g.dprojected);
  const std::size_t state_bytes = static_cast<std::size_t>(size) * size_of(dtype);
  CellBack back{};
  back.cell = static_cast<CellOp>(g.cell);
  back.batch = g.batch, back.units = g.units, back.all_time = g.time, back.is_reverse = g.reverse;
  back.lengths = g.lengths.data() ? call.data(g.lengths) : nullptr;
  back.are_i64 = g.lengths.dtype == DType::i64;
  back.h0 = as.in(g.h0), back.c0 = is_lstm ? as.in(g.c0) : nullptr;
  back.y = as.in(g.y), back.gates = as.in(g.gates), back.dy = as.in(g.dy);
  back.kept = is_lstm || is_gru ? call.data(g.kept) : nullptr;
  back.dh = as.out(g.dh0), back.dc = is_lstm ? as.out(g.dc0) : nullptr;
  call.copy(as.in(g.dh), back.dh, state_bytes);
  if (is_lstm) call.copy(as.in(g.dc), back.dc, state_bytes);
  void* const states = call.temporary(dtype, Shape{rows, g.units}).raw_mutable();
  void* const part = call.temporary(dtype, Shape{size}).raw_mutable();
  void* const of_product =
      is_gru ? call.temporary(dtype, Shape{rows, n}).raw_mutable() : dprojected;
  for (std::int64_t i = g.time; i-- > 0;) {
    const std::int64_t t = g.reverse ? g.time - 1 - i : i;
    back.time = t;
    back.dprojected = bytes_at(dprojected, t * g.batch * n, dtype);
    back.of_product = bytes_at(of_product, t * g.batch * n, dtype);
    back.state = bytes_at(states, t * size, dtype);
    call.check(recurrent_back(call.stream(), dtype, back), "a step back of a recurrent layer");
    BlasProduct p = product_of(dtype, g.batch, g.units, n, back.of_product, weights, part);
    p.transpose_b = true;
    multiply(call, p);
    call.check(add_product(call.stream(), dtype, back.dh, part, back),
               "a step back of a recurrent layer");
  }
  BlasProduct p = product_of(dtype, g.units, n, rows, states, of_product, as.out(g.drecurrent));
  p.transpose_a = true;
  multiply(call, p);
  void* const dbias = as.out(g.dbias);
  call.check(cuda::reduce(call.stream(), ReduceOp::sum, dtype, dprojected, dbias, 1, rows, n,
                          call.scratch(reduce_scratch(ReduceOp::sum, dtype, 1, rows, n))),
             "the gradient of a bias");
  as.store();
}

}  // namespace troupe::cuda
