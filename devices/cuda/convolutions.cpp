// Convolutions: by cuDNN where it has an engine, else as products with columns (products.cpp), and
// of integers element by element.
#include <troupe/devices/cuda/primitives.hpp>

#include <cstdint>

#include <troupe/devices/cuda/kernels/nn.hpp>
#include <troupe/devices/cuda/primitive_call.hpp>
#include <troupe/devices/cuda/windows.hpp>

namespace troupe::cuda {
namespace {

static_assert(are_alike(ConvolveOp::output, Convolve::output) &&
              are_alike(ConvolveOp::filter, Convolve::filter));

bool is_aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % kCudnnAlignment == 0;
}

std::int64_t elements_of(std::int64_t bytes, DType dtype) {
  return bytes / static_cast<std::int64_t>(size_of(dtype));
}

// An operand as cuDNN's plans have it: aligned, or a copy that is.
const void* aligned(PrimitiveCall& call, const ConstView& v) {
  const void* const data = call.data(v);
  if (is_aligned(data)) return data;
  const auto bytes = static_cast<std::int64_t>(v.bytes());
  void* const copy = call.temporary(v.dtype, Shape{elements_of(bytes, v.dtype)}).raw_mutable();
  call.copy(data, copy, v.bytes());
  return copy;
}

}  // namespace

// Weights are [window..., channels, filters] here, and [filters, window..., channels] to cuDNN: two
// transpositions of a matrix, small beside the convolution. Windows of one element are products
// without columns, for which cuBLASLt needs no transposed weights.
bool CudaPrimitives::convolve_by_library(PrimitiveCall& call, const ConvolveArgs& c) const {
  if (c.groups == 1 && has_columns(c.windows)) return false;
  const std::optional<ConvolutionForm> form = ConvolutionForm::of(c);
  if (!form) return false;
  const ConvolutionPlan* const plan = dnn_.find(*form);
  if (!plan) return false;
  const std::int64_t depth = form->taps() * c.channels / c.groups;
  const int bytes = PrimitiveCall::element_bytes(c.out.dtype);
  const auto transpose = [&](const void* from, void* to, std::int64_t rows, std::int64_t columns) {
    call.check(transpose_tiles(call.stream(), bytes, from, to, 1, rows, columns),
               "a transposition of weights");
  };
  const auto weights = [&] {
    return call.temporary(c.out.dtype, Shape{depth * c.filters}).raw_mutable();
  };
  ConvolutionPlan::Operands operands{aligned(call, c.a), nullptr, c.out.data};
  if (c.what == Convolve::filter) {
    operands.b = aligned(call, c.b);
    operands.out = weights();
  } else {
    void* const w = weights();
    transpose(call.data(c.b), w, depth, c.filters);
    operands.b = w;
    if (!is_aligned(c.out.data))
      operands.out = call.temporary(c.out.dtype, Shape{c.out.elements()}).raw_mutable();
  }
  void* const workspace = call.scratch(static_cast<std::size_t>(plan->workspace_bytes()));
  call.check(dnn_.run(call.direct_stream(), *plan, operands, workspace), "a convolution by cuDNN");
  if (c.what == Convolve::filter) transpose(operands.out, c.out.data, c.filters, depth);
  else if (operands.out != c.out.data) call.copy(operands.out, c.out.data, c.out.bytes());
  return true;
}

void CudaPrimitives::convolve(Stream& s, const ConvolveArgs& c) const {
  if (!has(Primitive::convolve, c.out.dtype)) refuse_dtype("a convolution", c.out.dtype);
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || c.out.elements() == 0) return;
  if (c.a.elements() == 0 || c.b.elements() == 0) return call.clear(c.out);
  if (convolve_by_library(call, c)) return;
  if (c.groups == 1 && is_floating(c.out.dtype)) return convolve_as_product(call, c);
  call.check(cuda::convolve(call.stream(), static_cast<ConvolveOp>(c.what), c.out.dtype,
                            call.data(c.a), call.data(c.b), c.out.data,
                            shape_of(c.windows, c.batch, c.channels), c.filters, c.groups),
             "a convolution");
}

}  // namespace troupe::cuda
