// One way to launch a kernel that both compilers take: nvcc, for a GPU, and g++, for tests, which
// run the kernel on the CPU (test/support/cuda/host_grid.hpp).
//
//   return launch(stream, dim3(rows), dim3(256), 0, row_sum<256>, x, y, columns);
//
// Launching is asynchronous: the kernel runs in the stream's order. The result shows whether the
// launch was accepted. While the calling thread holds work of the stream (runtime/stretches.hpp),
// the launch goes there, as bytes.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <cuda_runtime_api.h>

namespace troupe::cuda {

/// A call that enqueues work, as bytes, from which `issue` makes it: calls with equal bytes enqueue
/// equal work.
struct HeldCall {
  cudaError_t (*issue)(const unsigned char* bytes, cudaStream_t stream);
  const unsigned char* bytes;
  std::size_t size;
};

/// True if the calling thread holds work of the stream. runtime/stretches.cpp defines both.
bool holds(cudaStream_t stream);
/// Makes the call, now or later. The calling thread holds work of its stream.
cudaError_t take(const HeldCall& call);

/// A launch as bytes: this head, then the arguments, each at an offset that suits its type.
struct LaunchHead {
  const void* kernel;
  dim3 grid, block;
  std::size_t shared_bytes;
};

template <class... P>
struct LaunchBytes {
  static constexpr std::size_t kCount = sizeof...(P);
  /// Offsets of the arguments, and the size of all.
  static constexpr std::array<std::size_t, kCount + 1> kOffsets = [] {
    std::array<std::size_t, kCount + 1> offsets{};
    std::size_t at = sizeof(LaunchHead), i = 0;
    ((at = (at + alignof(P) - 1) / alignof(P) * alignof(P), offsets[i++] = at, at += sizeof(P)),
     ...);
    offsets[kCount] = at;
    return offsets;
  }();
  static_assert((std::is_trivially_copyable_v<P> && ...));

  static cudaError_t issue(const unsigned char* bytes, cudaStream_t stream);

  // Gaps are 0, so that equal launches have equal bytes.
  static cudaError_t take(const LaunchHead& head, const P&... arguments) {
    alignas(16) unsigned char bytes[kOffsets[kCount]] = {};
    std::memcpy(bytes, &head, sizeof head);
    std::size_t i = 0;
    ((std::memcpy(bytes + kOffsets[i++], &arguments, sizeof arguments)), ...);
    return cuda::take({&issue, bytes, sizeof bytes});
  }
};

#if defined(__CUDACC__)

template <class... P>
cudaError_t LaunchBytes<P...>::issue(const unsigned char* bytes, cudaStream_t stream) {
  LaunchHead head;
  std::memcpy(&head, bytes, sizeof head);
  void* pointers[kCount + 1] = {};
  for (std::size_t i = 0; i < kCount; ++i)
    pointers[i] = const_cast<unsigned char*>(bytes + kOffsets[i]);
  return cudaLaunchKernel(head.kernel, head.grid, head.block, pointers, head.shared_bytes, stream);
}

template <class... P>
cudaError_t launch(cudaStream_t stream, dim3 grid, dim3 block, std::size_t shared_bytes,
                   void (*kernel)(P...), std::type_identity_t<P>... arguments) {
  const void* const entry = reinterpret_cast<const void*>(kernel);
  if (holds(stream))
    return LaunchBytes<P...>::take({entry, grid, block, shared_bytes}, arguments...);
  void* pointers[] = {&arguments...};
  return cudaLaunchKernel(entry, grid, block, pointers, shared_bytes, stream);
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
cudaError_t LaunchBytes<P...>::issue(const unsigned char* bytes, cudaStream_t stream) {
  LaunchHead head;
  std::memcpy(&head, bytes, sizeof head);
  auto* const kernel = reinterpret_cast<void (*)(P...)>(const_cast<void*>(head.kernel));
  const auto argument = [bytes]<class A>(std::type_identity<A>, std::size_t offset) {
    std::array<unsigned char, sizeof(A)> of_argument;
    std::memcpy(of_argument.data(), bytes + offset, of_argument.size());
    return std::bit_cast<A>(of_argument);
  };
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    std::tuple<P...> arguments(argument(std::type_identity<P>{}, kOffsets[I])...);
    return launch_on_host([=] { std::apply(kernel, arguments); }, head.grid, head.block,
                          head.shared_bytes, stream);
  }
  (std::index_sequence_for<P...>{});
}

template <class... P>
cudaError_t launch(cudaStream_t stream, dim3 grid, dim3 block, std::size_t shared_bytes,
                   void (*kernel)(P...), std::type_identity_t<P>... arguments) {
  if (holds(stream))
    return LaunchBytes<P...>::take(
        {reinterpret_cast<const void*>(kernel), grid, block, shared_bytes}, arguments...);
  return launch_on_host([=] { kernel(arguments...); }, grid, block, shared_bytes, stream);
}

#endif

}  // namespace troupe::cuda
