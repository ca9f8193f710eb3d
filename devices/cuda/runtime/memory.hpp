// Memory of a GPU, and host memory that copies read and write as it is.
//
// Device memory comes from a memory pool of the runtime's own in the order of the compute stream,
// and is kept in size classes by the engine's caching allocator. Freed blocks are reused in that
// order. Pinned memory is one cache a process: host tensors that copies use may outlive their
// device.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <cuda_runtime_api.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/tensor/allocator.hpp>

namespace troupe::cuda {

class Queue;

/// The memory of the device whose compute queue this is, which must outlive it. `limit` in bytes,
/// 0: none. `poisons`: fresh and freed memory is filled with bytes of 0xFF in the queue's order.
std::unique_ptr<Allocator> make_device_memory(Queue& compute, std::uint64_t limit, bool poisons);

/// Pinned host memory, in size classes. Never destroyed.
Allocator& pinned_memory();

/// True if the bytes lie in a block of pinned_memory().
bool is_pinned(const void* data, std::size_t bytes);

}  // namespace troupe::cuda
