// Reductions that compare elements: extrema, where they are, logsumexp.
#include <troupe/devices/cuda/kernels/reduce_kernels.hpp>

namespace troupe::cuda {

cudaError_t reduce_ordered(const Request& request) {
  return visit_unsigned(request.dtype, [&]<class T>(type_tag<T>) -> cudaError_t {
    if constexpr (!is_complex_type<T>) {
      switch (request.op) {
        case ReduceOp::min:
        case ReduceOp::max: return run_reduction<Extremum<T>>(request);
        case ReduceOp::argmin:
        case ReduceOp::argmax: return run_reduction<Where<T>>(request);
        case ReduceOp::logsumexp:
          if constexpr (is_real_float<T>) return run_reduction<LogSumExp<T>>(request);
          break;
        default: break;
      }
    }
    return cudaErrorInvalidValue;
  });
}

}  // namespace troupe::cuda
