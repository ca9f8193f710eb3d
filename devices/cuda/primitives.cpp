#include <troupe/devices/cuda/primitives.hpp>

#include <troupe/devices/cuda/kernels/axes.hpp>
#include <troupe/devices/cuda/primitive_call.hpp>
#include <troupe/devices/device/philox.hpp>

namespace troupe::cuda {

static_assert(are_alike(ScatterOp::update, Scatter::update) &&
              are_alike(ScatterOp::sub, Scatter::sub) && are_alike(ScatterOp::max, Scatter::max));
static_assert(are_alike(RandomOp::uniform, Random::uniform) &&
              are_alike(RandomOp::truncated_normal, Random::truncated_normal));

void refuse(Primitive p) {
  throw Error(Code::unimplemented,
              fmt::format("the GPU has no primitive {}; place the operation on a cpu", name_of(p)));
}

void refuse_dtype(const char* what, DType dtype) {
  throw Error(Code::unimplemented, fmt::format("{} of {} is not defined", what, name_of(dtype)));
}

void check_index_type_of(const ConstView& indices) {
  if (indices.dtype != DType::i32 && indices.dtype != DType::i64)
    throw Error(Code::invalid_argument,
                fmt::format("indices are i32 or i64, not {}", name_of(indices.dtype)));
}

Element element_of(const Tensor& scalar) {
  Element value{};
  std::memcpy(value.bytes, scalar.raw(), size_of(scalar.dtype()));
  return value;
}

bool CudaPrimitives::has(Primitive p, DType dtype) const {
  switch (p) {
    case Primitive::copy:
    case Primitive::fill:
    case Primitive::pointwise:
    case Primitive::pointwise_rows:
    case Primitive::reduce:
    case Primitive::pointwise_reduce:
    case Primitive::transpose:
    case Primitive::copy_block:
    case Primitive::gather:
    case Primitive::scatter:
    case Primitive::one_hot:
    case Primitive::range:
    case Primitive::random:
    case Primitive::along: return true;
    case Primitive::scan: return dtype != DType::boolean;
    case Primitive::pool:
    case Primitive::sort:
    case Primitive::search: return is_floating(dtype) || is_integer(dtype);
    case Primitive::matmul: return has_product(dtype) || is_integer(dtype);
    case Primitive::convolve: return is_floating(dtype) || is_integer(dtype);
    case Primitive::softmax:
    case Primitive::cross_entropy:
    case Primitive::cross_entropy_gradient:
    case Primitive::attention:
    case Primitive::attention_gradient:
    case Primitive::row_norm:
    case Primitive::row_norm_gradient:
    case Primitive::channel_sums:
    case Primitive::recurrent:
    case Primitive::recurrent_gradient: return is_floating(dtype);
    case Primitive::ctc: return dtype == DType::f32 || dtype == DType::f64;
    case Primitive::algebra: return false;
  }
  return false;
}

// ---- moves

void CudaPrimitives::copy(Stream& s, ConstView in, View out) const {
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || out.bytes() == 0) return;
  if (in.is_inline()) {
    Element value{};
    std::memcpy(value.bytes, in.data(), size_of(in.dtype));
    call.check(
        cuda::fill(call.stream(), value, PrimitiveCall::element_bytes(in.dtype), out.data, 1),
        "copying a scalar");
    return;
  }
  call.copy(in.data(), out.data, out.bytes());
}

void CudaPrimitives::fill(Stream& s, const Tensor& scalar, View out) const {
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || out.elements() == 0) return;
  call.check(cuda::fill(call.stream(), element_of(scalar), PrimitiveCall::element_bytes(out.dtype),
                        out.data, out.elements()),
             "filling");
}

void CudaPrimitives::transpose(Stream& s, ConstView in, View out,
                               std::span<const std::int64_t> permutation) const {
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || out.elements() == 0) return;
  const Strides strides = strides_of(in.shape);
  // Axes of the output that lie behind one another in the input too are one.
  Box from, to;
  std::int64_t extent[kMaxRank] = {};
  for (std::size_t i = 0; i < permutation.size(); ++i) {
    const auto axis = static_cast<int>(permutation[i]);
    if (in.shape[axis] == 1) continue;
    if (from.rank > 0 &&
        from.stride[from.rank - 1] == strides[static_cast<std::size_t>(axis)] * in.shape[axis]) {
      extent[from.rank - 1] *= in.shape[axis];
      from.stride[from.rank - 1] = strides[static_cast<std::size_t>(axis)];
      continue;
    }
    extent[from.rank] = in.shape[axis];
    from.stride[from.rank++] = strides[static_cast<std::size_t>(axis)];
  }
  to.rank = from.rank;
  std::int64_t stride = 1;
  for (int i = to.rank - 1; i >= 0; --i) {
    to.stride[i] = stride;
    stride *= extent[i];
  }
  const void* const data = call.data(in);
  const int bytes = PrimitiveCall::element_bytes(in.dtype);
  const int r = from.rank;
  const bool swaps_last = r >= 2 && r <= 3 && from.stride[r - 2] == 1 &&
                          from.stride[r - 1] == extent[r - 2] &&
                          (r == 2 || from.stride[0] == extent[1] * extent[2]);
  if (swaps_last)
    call.check(cuda::transpose_tiles(call.stream(), bytes, data, out.data, r == 3 ? extent[0] : 1,
                                     extent[r - 1], extent[r - 2]),
               "a transposition");
  else
    call.check(cuda::copy_box(call.stream(), bytes, data, from, out.data, to, extent),
               "a transposition");
}

void CudaPrimitives::copy_block(Stream& s, ConstView in, const Block& from, View out,
                                const Block& to, const Shape& extents) const {
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || extents.elements() == 0) return;
  const auto box = [&](const Shape& shape, const Block& block) {
    const Strides strides = strides_of(shape);
    Box b;
    b.rank = shape.rank();
    for (int i = 0; i < b.rank; ++i) {
      const std::int64_t stride = strides[static_cast<std::size_t>(i)];
      b.first += block.start[i] * stride;
      b.stride[i] = block.step[i] * stride;
    }
    return b;
  };
  std::int64_t extent[kMaxRank] = {};
  for (int i = 0; i < extents.rank(); ++i) extent[i] = extents[i];
  call.check(cuda::copy_box(call.stream(), PrimitiveCall::element_bytes(in.dtype), call.data(in),
                            box(in.shape, from), out.data, box(out.shape, to), extent),
             "copying a block");
}

void CudaPrimitives::gather(Stream& s, ConstView params, ConstView indices, int axis,
                            View out) const {
  check_index_type_of(indices);
  PrimitiveCall call(device_, index_, s);
  const std::int64_t n = indices.elements();
  if (call.skips() || n == 0) return;
  const std::int64_t outer = product_of(params.shape, 0, axis), extent = params.shape[axis],
                     inner = product_of(params.shape, axis + 1, params.shape.rank());
  // Indices are checked though no element is moved.
  const Queue::Check check = call.queue().begin_check();
  const cudaError_t error =
      cuda::gather(call.stream(), PrimitiveCall::element_bytes(params.dtype), call.data(params),
                   call.data(indices), indices.dtype == DType::i64, out.data, outer, extent, inner,
                   n, check.record());
  call.queue().end_check(check, extent, call.origin());
  call.check(error, "a gather");
}

void CudaPrimitives::scatter(Stream& s, Scatter how, ConstView indices, ConstView updates,
                             View out) const {
  check_index_type_of(indices);
  PrimitiveCall call(device_, index_, s);
  const std::int64_t n = indices.elements();
  if (call.skips() || n == 0) return;
  const std::int64_t extent = out.shape[0], inner = product_of(out.shape, 1, out.shape.rank());
  const Queue::Check check = call.queue().begin_check();
  const cudaError_t error = cuda::scatter(
      call.stream(), static_cast<ScatterOp>(how), out.dtype, call.data(indices),
      indices.dtype == DType::i64, call.data(updates), out.data, extent, inner, n, check.record());
  call.queue().end_check(check, extent, call.origin());
  call.check(error, "a scatter");
}

void CudaPrimitives::one_hot(Stream& s, ConstView indices, const Tensor& on, const Tensor& off,
                             View out) const {
  check_index_type_of(indices);
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || out.elements() == 0) return;
  call.check(
      cuda::one_hot(call.stream(), PrimitiveCall::element_bytes(out.dtype), call.data(indices),
                    indices.dtype == DType::i64, element_of(on), element_of(off), out.data,
                    indices.elements(), out.shape[out.shape.rank() - 1], 1),
      "one_hot");
}

void CudaPrimitives::range(Stream& s, double start, double step, View out) const {
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || out.elements() == 0) return;
  call.check(cuda::range(call.stream(), start, step, out.dtype, out.data, out.elements()),
             "a range");
}

// ---- random numbers

void CudaPrimitives::random(Stream& s, Random how, const RandomKey& key, View out) const {
  PrimitiveCall call(device_, index_, s);
  if (how != Random::uniform && !is_floating(out.dtype) && !is_complex(out.dtype))
    throw Error(Code::unimplemented,
                fmt::format("normal numbers of {} are not defined", name_of(out.dtype)));
  if (call.skips() || out.elements() == 0) return;
  const std::array<std::uint32_t, 3> words = Generator(key).words();
  call.check(cuda::random(call.stream(), static_cast<RandomOp>(how), out.dtype, words.data(),
                          out.data, out.elements()),
             "random numbers");
}

// ---- missing primitives

void CudaPrimitives::algebra(Stream&, const AlgebraArgs&) const { refuse(Primitive::algebra); }

}  // namespace troupe::cuda
