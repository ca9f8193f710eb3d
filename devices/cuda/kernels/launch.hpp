// One way to launch a kernel that both compilers take: nvcc, for a GPU, and g++, for tests, which
// run the kernel on the CPU (test/support/cuda/host_grid.hpp).
//
//   return launch(stream, dim3(rows), dim3(256), 0, row_sum<256>, x, y, columns);
//
// Launching is asynchronous: the kernel runs in the stream's order. The result shows whether the
// launch was accepted.
#pragma once

#include <cstddef>
#include <functional>
#include <type_traits>

#include <cuda_runtime_api.h>

namespace troupe::cuda {

#if defined(__CUDACC__)

template <class... P>
cudaError_t launch(cudaStream_t stream, dim3 grid, dim3 block, std::size_t shared_bytes,
                   void (*kernel)(P...), std::type_identity_t<P>... arguments) {
  void* pointers[] = {&arguments...};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, pointers,
                          shared_bytes, stream);
}

/// In a kernel: the dynamic shared memory of its block, as a pointer `name` to T. Its size is the
/// launch's `shared_bytes`, its alignment 16 bytes.
#define TROUPE_DYNAMIC_SHARED(T, name)                                   \
  extern __shared__ __align__(16) unsigned char troupe_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(troupe_dynamic_shared)

#else

#define TROUPE_DYNAMIC_SHARED(T, name) \
  T* const name = static_cast<T*>(::troupe::cuda::dynamic_shared_on_host())

/// The dynamic shared memory of the block that runs. The fake CUDA runtime of the tests defines it.
void* dynamic_shared_on_host();

/// Runs `body` once for each thread of the grid, in the stream's order. The fake CUDA runtime of
/// the tests defines it.
cudaError_t launch_on_host(std::function<void()> body, dim3 grid, dim3 block,
                           std::size_t shared_bytes, cudaStream_t stream);

template <class... P>
cudaError_t launch(cudaStream_t stream, dim3 grid, dim3 block, std::size_t shared_bytes,
                   void (*kernel)(P...), std::type_identity_t<P>... arguments) {
  return launch_on_host([=] { kernel(arguments...); }, grid, block, shared_bytes, stream);
}

#endif

}  // namespace troupe::cuda
