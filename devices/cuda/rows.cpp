// Primitives over rows and columns: reductions, softmax, cross entropy, normalisation, and pooling.
#include <troupe/devices/cuda/primitives.hpp>

#include <algorithm>

#include <troupe/devices/cuda/kernels/nn.hpp>
#include <troupe/devices/cuda/primitive_call.hpp>
#include <troupe/devices/cuda/windows.hpp>
#include <troupe/devices/device/channel_sums.hpp>
#include <troupe/devices/device/row_norm.hpp>

namespace troupe::cuda {

static_assert(are_alike(ReduceOp::sum, Reduction::sum) &&
              are_alike(ReduceOp::any, Reduction::any) &&
              are_alike(ReduceOp::argmin, Reduction::argmin) &&
              are_alike(ReduceOp::logsumexp, Reduction::logsumexp));
static_assert(are_alike(PoolOp::max, Pool::max) && are_alike(PoolOp::max_at, Pool::max_at) &&
              are_alike(PoolOp::mean_gradient, Pool::mean_gradient));

// ---- reductions

void CudaPrimitives::reduce(Stream& s, Reduction how, ConstView in, View out,
                            std::uint32_t axes) const {
  const bool needs_elements = how == Reduction::min || how == Reduction::max ||
                              how == Reduction::argmin || how == Reduction::argmax;
  // Axes of extent 1 aside, neighbours that are reduced, or are not, are one.
  struct Axis {
    std::int64_t extent;
    bool is_reduced;
  };
  std::array<Axis, Shape::kMaxRank> seen{};
  std::size_t count = 0;
  std::int64_t reduced = 1, kept = 1;
  for (int i = 0; i < in.shape.rank(); ++i) {
    const bool is_reduced = axes >> i & 1;
    (is_reduced ? reduced : kept) *= in.shape[i];
    if (in.shape[i] == 1) continue;
    if (count > 0 && seen[count - 1].is_reduced == is_reduced)
      seen[count - 1].extent *= in.shape[i];
    else seen[count++] = {in.shape[i], is_reduced};
  }
  if (needs_elements && reduced == 0 && kept > 0)
    throw Error(Code::out_of_range,
                fmt::format("there is none among no elements: {}", in.shape.text()));
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || out.elements() == 0) return;

  std::int64_t outer = 1, inner = 1;
  Tensor moved;
  ConstView from = in;
  const auto end = seen.begin() + count;
  const auto first = std::find_if(seen.begin(), end, [](const Axis& a) { return a.is_reduced; });
  const auto reduced_axes =
      std::count_if(seen.begin(), end, [](const Axis& a) { return a.is_reduced; });
  if (reduced_axes <= 1 || in.elements() == 0) {
    for (auto it = seen.begin(); it != first; ++it) outer *= it->extent;
    if (first != end)
      for (auto it = first + 1; it != end; ++it) inner *= it->extent;
    if (in.elements() == 0) outer = kept, inner = 1;
  } else {
    Shape apart;
    std::array<std::int64_t, Shape::kMaxRank> order{};
    std::size_t next = 0;
    for (std::size_t i = 0; i < count; ++i) apart.push_back(seen[i].extent);
    for (const bool second : {false, true})
      for (std::size_t i = 0; i < count; ++i)
        if (seen[i].is_reduced == second) order[next++] = static_cast<std::int64_t>(i);
    moved = device_.empty(in.dtype, Shape{in.elements()});
    Shape permuted;
    for (std::size_t i = 0; i < count; ++i) permuted.push_back(apart[static_cast<int>(order[i])]);
    transpose(s, ConstView(in.data(), in.dtype, apart),
              View(moved.raw_mutable(), in.dtype, permuted), std::span(order.data(), count));
    from = ConstView(moved);
    outer = kept;
  }
  const auto op = static_cast<ReduceOp>(how);
  void* const scratch = call.scratch(reduce_scratch(op, in.dtype, outer, reduced, inner));
  call.check(cuda::reduce(call.stream(), op, in.dtype, call.data(from), out.data, outer, reduced,
                          inner, scratch),
             "a reduction");
}

void CudaPrimitives::pointwise_reduce(Stream& s, const PointwiseReduceArgs& a) const {
  View of = a.results[a.reduced];
  Tensor made;
  if (of.data) {
    pointwise(s, *a.program, a.in, a.results);
  } else {
    std::vector<View> results(a.results.begin(), a.results.end());
    made = device_.empty(of.dtype, of.shape);
    results[a.reduced].data = of.data = made.raw_mutable();
    pointwise(s, *a.program, a.in, results);
  }
  reduce(s, a.how, ConstView(of.data, of.dtype, of.shape), a.out, a.axes);
}

// ---- softmax and cross entropy

void CudaPrimitives::softmax(Stream& s, ConstView in, View out, bool log) const {
  if (!is_floating(in.dtype)) refuse_dtype("softmax", in.dtype);
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || in.elements() == 0) return;
  const std::int64_t n = in.shape.rank() ? in.shape[in.shape.rank() - 1] : 1;
  call.check(
      cuda::softmax(call.stream(), in.dtype, call.data(in), out.data, in.elements() / n, n, log),
      "softmax");
}

void CudaPrimitives::cross_entropy(Stream& s, ConstView logits, ConstView labels, View loss) const {
  check_index_type_of(labels);
  if (!is_floating(logits.dtype)) refuse_dtype("cross_entropy", logits.dtype);
  PrimitiveCall call(device_, index_, s);
  const std::int64_t rows = logits.shape[0], n = logits.shape[1];
  if (call.skips() || rows == 0) return;
  const Queue::Check check = call.queue().begin_check();
  const cudaError_t error =
      cuda::cross_entropy(call.stream(), logits.dtype, call.data(logits), call.data(labels),
                          labels.dtype == DType::i64, loss.data, rows, n, check.record());
  call.queue().end_check(check, n, call.origin());
  call.check(error, "a cross entropy");
}

void CudaPrimitives::cross_entropy_gradient(Stream& s, ConstView logits, ConstView labels,
                                            ConstView scale, View out) const {
  check_index_type_of(labels);
  if (!is_floating(logits.dtype)) refuse_dtype("cross_entropy_gradient", logits.dtype);
  PrimitiveCall call(device_, index_, s);
  const std::int64_t rows = logits.shape[0], n = logits.shape[1];
  if (call.skips() || rows == 0) return;
  const void* factor = call.data(scale);
  if (scale.dtype != logits.dtype) {
    void* const converted = call.temporary(logits.dtype, Shape{rows}).raw_mutable();
    call.check(convert(call.stream(), scale.dtype, factor, logits.dtype, converted, rows),
               "a conversion");
    factor = converted;
  }
  const Queue::Check check = call.queue().begin_check();
  const cudaError_t error = cuda::cross_entropy_gradient(
      call.stream(), logits.dtype, call.data(logits), call.data(labels), labels.dtype == DType::i64,
      factor, out.data, rows, n, check.record());
  call.queue().end_check(check, n, call.origin());
  call.check(error, "the gradient of a cross entropy");
}

// ---- normalisation

void CudaPrimitives::row_norm(Stream& s, const RowNormArgs& a) const {
  if (!is_floating(a.x.dtype)) refuse_dtype("normalisation", a.x.dtype);
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || a.rows == 0) return;
  const RowNormMemory m{call.data(a.x),
                        call.data(a.scale),
                        a.centered ? call.data(a.bias) : nullptr,
                        a.scale.elements() != a.n,
                        a.centered && a.bias.elements() != a.n,
                        a.y.data,
                        a.centered ? a.mean.data : nullptr,
                        a.rstd.data};
  call.check(cuda::row_norm(call.stream(), a.x.dtype, m, a.rows, a.n, a.epsilon, a.centered),
             "normalisation");
}

void CudaPrimitives::row_norm_gradient(Stream& s, const RowNormGradientArgs& a) const {
  if (!is_floating(a.x.dtype)) refuse_dtype("normalisation", a.x.dtype);
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || a.n == 0) return;
  const RowNormBackMemory m{
      call.data(a.x),    call.data(a.scale), a.centered ? call.data(a.mean) : nullptr,
      call.data(a.rstd), call.data(a.dy),    a.scale.elements() != a.n,
      a.dx.data,         a.dscale.data,      a.centered ? a.dbias.data : nullptr};
  void* const scratch = call.scratch(row_norm_gradient_scratch(a.rows, a.n));
  call.check(cuda::row_norm_gradient(call.stream(), a.x.dtype, m, a.rows, a.n, scratch),
             "the gradient of a normalisation");
}

void CudaPrimitives::channel_sums(Stream& s, const ChannelSumsArgs& a) const {
  if (a.x.dtype != DType::f32 && a.x.dtype != DType::f64) refuse_dtype("normalisation", a.x.dtype);
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || a.first.elements() == 0) return;
  void* const scratch = call.scratch(channel_sums_scratch(a.outer, a.rows, a.n));
  const bool is_gradient = a.mean.data() != nullptr;
  call.check(cuda::channel_sums(
                 call.stream(), a.x.dtype, call.data(a.x), is_gradient ? call.data(a.dy) : nullptr,
                 is_gradient ? call.data(a.mean) : nullptr, static_cast<double*>(a.first.data),
                 static_cast<double*>(a.second.data), a.outer, a.rows, a.n, scratch),
             "sums by channel");
}

// ---- pooling

void CudaPrimitives::pool(Stream& s, const PoolArgs& p) const {
  const bool is_mean = p.what == Pool::mean || p.what == Pool::mean_gradient;
  if (p.out.dtype == DType::boolean || is_complex(p.out.dtype) ||
      (is_mean && !is_floating(p.out.dtype)))
    refuse_dtype("pooling", p.out.dtype);
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || p.out.elements() == 0) return;
  const auto op = static_cast<PoolOp>(p.what);
  const WindowShape shape = shape_of(p.windows, p.batch, p.channels);
  const bool has_other = p.what == Pool::max_gradient || p.what == Pool::max_at;
  const void* const x = call.data(p.x);
  const void* const other = has_other ? call.data(p.other) : nullptr;
  call.check(cuda::pool(call.stream(), op, p.out.dtype, x, other, p.out.data, shape,
                        call.scratch(pool_scratch(op, shape))),
             "pooling");
}

}  // namespace troupe::cuda
