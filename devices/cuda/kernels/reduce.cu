// Reductions: sums, means, products, any and all; and the dispatch of the others. reduce_order.cu
// has the others, so that two compilers share the work.
#include <troupe/devices/cuda/kernels/reduce_kernels.hpp>

namespace troupe::cuda {
namespace {

// The bits of an element that make it true: in a float all but its sign, in a complex number all
// but its parts' signs.
std::uint64_t truth_mask(DType type) {
  switch (type) {
    case DType::f16:
    case DType::bf16: return 0x7FFF;
    case DType::f32: return 0x7FFFFFFF;
    case DType::c64: return 0x7FFFFFFF7FFFFFFF;
    case DType::f64:
    case DType::c128: return 0x7FFFFFFFFFFFFFFF;
    default: return ~std::uint64_t{0};
  }
}

cudaError_t reduce_logical(const Request& request) {
  switch (size_of(request.dtype)) {
    case 1: return run_reduction<Logical<std::uint8_t>>(request);
    case 2: return run_reduction<Logical<std::uint16_t>>(request);
    case 4: return run_reduction<Logical<std::uint32_t>>(request);
    case 8: return run_reduction<Logical<std::uint64_t>>(request);
    default: return run_reduction<Logical<Bits128>>(request);
  }
}

// Sums and means of booleans are `any`, products are `all`; extrema compare them as numbers.
// Kernels see signed integers as unsigned ones.
void simplify(Request& r) {
  if (r.dtype == DType::boolean) {
    if (r.op == ReduceOp::sum || r.op == ReduceOp::mean) r.op = ReduceOp::any;
    else if (r.op == ReduceOp::product) r.op = ReduceOp::all;
    r.dtype = DType::u8;
  }
  r.how.mask = truth_mask(r.dtype);
  r.how.is_mean = r.op == ReduceOp::mean;
  r.how.is_largest = r.op == ReduceOp::max || r.op == ReduceOp::argmax;
  r.how.is_all = r.op == ReduceOp::all;
  if (!is_signed_integer(r.dtype)) return;
  r.how.sign = std::uint64_t{1} << (8 * size_of(r.dtype) - 1);
  constexpr int apart = static_cast<int>(DType::u8) - static_cast<int>(DType::i8);
  r.dtype = static_cast<DType>(static_cast<int>(r.dtype) + apart);
}

cudaError_t reduce_requested(Request request) {
  if (request.dtype == DType::string) return cudaErrorInvalidValue;
  if (request.extents.results() == 0) return cudaSuccess;
  simplify(request);
  switch (request.op) {
    case ReduceOp::sum:
    case ReduceOp::mean:
      return visit_unsigned(request.dtype,
                            [&]<class T>(type_tag<T>) { return run_reduction<Sum<T>>(request); });
    case ReduceOp::product:
      return visit_unsigned(
          request.dtype, [&]<class T>(type_tag<T>) { return run_reduction<Product<T>>(request); });
    case ReduceOp::any:
    case ReduceOp::all: return reduce_logical(request);
    default: return reduce_ordered(request);
  }
}

}  // namespace

std::size_t reduce_scratch(ReduceOp op, DType in, std::int64_t outer, std::int64_t reduced,
                           std::int64_t inner) {
  std::size_t bytes = 0;
  reduce_requested({.stream = {},
                    .op = op,
                    .dtype = in,
                    .in = nullptr,
                    .out = nullptr,
                    .extents = Extents(outer, reduced, inner),
                    .scratch = nullptr,
                    .scratch_bytes = &bytes,
                    .how = {}});
  return bytes;
}

cudaError_t reduce(cudaStream_t stream, ReduceOp op, DType in_dtype, const void* in, void* out,
                   std::int64_t outer, std::int64_t reduced, std::int64_t inner, void* scratch) {
  return reduce_requested({.stream = stream,
                           .op = op,
                           .dtype = in_dtype,
                           .in = in,
                           .out = out,
                           .extents = Extents(outer, reduced, inner),
                           .scratch = scratch,
                           .scratch_bytes = nullptr,
                           .how = {.n = reduced}});
}

}  // namespace troupe::cuda
