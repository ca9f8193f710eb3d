// Matrix products, behind an interface that cuBLASLt implements, and in tests the CPU.
#pragma once

#include <cstdint>
#include <memory>

#include <cuda_runtime_api.h>

#include <troupe/devices/base/dtype.hpp>

namespace troupe::cuda {

/// `batch` products of row-major matrices: out[i] = a[i] b[i], with a [m, k], or [k, m] if
/// transpose_a; b [k, n], or [n, k] if transpose_b; out [m, n]. No extent is 0.
struct BlasProduct {
  DType dtype;
  DType out_dtype;  // dtype; or f32, if dtype is f16 or bf16
  std::int64_t m, n, k, batch;
  const void* a;
  const void* b;
  void* out;
  bool transpose_a, transpose_b;
  // elements from one product of the batch to the next; 0: the same for all
  std::int64_t a_stride, b_stride, out_stride;
};

class Blas {
 public:
  virtual ~Blas() = default;
  /// Enqueues the products. f16 and bf16 accumulate in f32. Equal arguments give equal bits.
  /// `workspace` is device memory of workspace_bytes(), of this stream's alone.
  virtual cudaError_t multiply(cudaStream_t stream, const BlasProduct& product,
                               void* workspace) = 0;
  virtual std::size_t workspace_bytes() const = 0;
};

/// True for the dtypes whose products there are: floating and complex.
bool has_product(DType dtype);

/// Makes the library's handle for the current device. `tf32`: products of f32 may round their
/// operands. Throws failed_precondition, naming the folders that were looked through, where the
/// library is missing. The tests' fake runtime defines it for the CPU.
std::unique_ptr<Blas> make_blas(bool tf32);

}  // namespace troupe::cuda
