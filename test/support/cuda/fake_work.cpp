// The work of streams: launches, host work, copies and written values.
#include <algorithm>
#include <cstring>

#include <cuda.h>

#include <troupe/devices/cuda/kernels/launch.hpp>
#include <troupe/test/support/cuda/fake_state.hpp>
#include <troupe/test/support/cuda/host_grid.hpp>

using namespace fake_cuda;

// ---- kernels and host work

namespace {

bool is_launchable(dim3 grid, dim3 block, std::size_t shared_bytes) {
  const auto threads = std::uint64_t{block.x} * block.y * block.z;
  return grid.x >= 1 && grid.x <= 2147483647 && grid.y >= 1 && grid.y <= 65535 && grid.z >= 1 &&
         grid.z <= 65535 && threads >= 1 && threads <= 1024 && block.z <= 64 &&
         shared_bytes <= state().max_shared_bytes.load(std::memory_order_relaxed);
}

}  // namespace

cudaError_t troupe::cuda::launch_on_host(std::function<void()> body, dim3 grid, dim3 block,
                                         std::size_t shared_bytes, cudaStream_t stream) {
  FAKE_CUDA_ENTER("cudaLaunchKernel", stream);
  if (const cudaError_t error = check_current("cudaLaunchKernel", stream->device)) return error;
  if (!is_launchable(grid, block, shared_bytes)) return result(cudaErrorInvalidConfiguration);
  if (const cudaError_t error = check_capture(stream)) return error;
  count(stream->capture == nullptr ? state().counts.launches : state().counts.captured);
  const bool is_shuffled = state().options.seed != 0;
  add_work(
      stream,
      [=, body = std::move(body)](Random& random) {
        host_grid::run({grid, block, shared_bytes, is_shuffled ? random.next() : 0}, body);
      },
      NodeKind::kernel);
  return cudaSuccess;
}

void* troupe::cuda::dynamic_shared_on_host() { return host_grid::dynamic_shared(); }

cudaError_t fake_cuda::enqueue(cudaStream_t stream, std::function<void()> work, const char* name) {
  FAKE_CUDA_ENTER(name, stream);
  if (const cudaError_t error = check_capture(stream)) return error;
  count(stream->capture == nullptr ? state().counts.host_work : state().counts.captured);
  add_work(
      stream, [work = std::move(work)](Random&) { work(); }, NodeKind::host_work);
  return cudaSuccess;
}

// ---- copies

namespace {

void check_kept(const char* what, const Block* block) {
  if (block != nullptr && block->is_buried.load(std::memory_order_relaxed))
    violate(std::string(what) + " of " + std::to_string(block->bytes) +
            " bytes that were freed before the stream came to it");
}

struct Copy {
  const char* name;
  void* to;
  const void* from;
  std::size_t bytes;
  Block *to_block, *from_block;  // null: pageable memory

  void run() const {
    check_kept("a write to a block", to_block);
    check_kept("a read from a block", from_block);
    std::memmove(to, from, bytes);
  }
};

bool is_device_block(const Block* block) { return block != nullptr && block->device != kPinned; }

// Fills in the blocks of a copy of this kind; violates if a side is not what the kind says.
cudaError_t find_sides(Copy& copy, cudaMemcpyKind kind) {
  {
    std::lock_guard lock(state().memory);
    copy.to_block = find_block(copy.to, copy.bytes);
    copy.from_block = find_block(copy.from, copy.bytes);
    for (const Block* block : {copy.to_block, copy.from_block}) {
      if (block == nullptr || !block->is_freed) continue;
      violate(std::string(copy.name) + " uses a block that was freed");
      return result(cudaErrorInvalidValue);
    }
  }
  if (kind == cudaMemcpyDefault) return cudaSuccess;
  const bool is_to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool is_from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (is_device_block(copy.to_block) == is_to_device &&
      is_device_block(copy.from_block) == is_from_device)
    return cudaSuccess;
  violate(std::string(copy.name) + " of " + std::to_string(copy.bytes) + " bytes: " +
          (is_device_block(copy.to_block) != is_to_device ? "the destination" : "the source") +
          " is not the memory that the kind says");
  return result(cudaErrorInvalidValue);
}

constexpr std::size_t kMaxStagedBytes = 64 << 10;  // larger pageable sources block the caller

void note_pageable(const Copy& copy) {
  State& s = state();
  std::lock_guard lock(s.texts);
  if (s.pageable_copies.size() < 200)
    s.pageable_copies.push_back(std::string(copy.name) + " of " + std::to_string(copy.bytes) +
                                " bytes " + (copy.to_block == nullptr ? "to" : "from") +
                                " pageable memory");
}

// As the driver does: a small source is staged by the call, and all else blocks it.
void copy_pageable(const Copy& copy, cudaStream_t stream) {
  note_pageable(copy);
  const auto run = [copy](Random&) { copy.run(); };
  if (stream->capture != nullptr) return add_work(stream, run, NodeKind::copy);
  if (copy.to_block != nullptr && copy.bytes <= kMaxStagedBytes) {
    const auto* first = static_cast<const char*>(copy.from);
    std::vector<char> staged(first, first + copy.bytes);
    return add_work(
        stream,
        [copy, staged = std::move(staged)](Random&) {
          Copy from_staged = copy;
          from_staged.from = staged.data();
          from_staged.run();
        },
        NodeKind::copy);
  }
  add_work(stream, run, NodeKind::copy);
  count(state().counts.syncs);
  Mark& mark = stream->push_mark();
  mark.wait();
  mark.end_use();
}

cudaError_t add_copy(Copy copy, cudaMemcpyKind kind, cudaStream_t stream) {
  if (copy.bytes == 0) return cudaSuccess;
  if (const cudaError_t error = check_capture(stream)) return error;
  if (const cudaError_t error = find_sides(copy, kind)) return error;
  count(state().counts.copies);
  if (copy.to_block == nullptr || copy.from_block == nullptr) copy_pageable(copy, stream);
  else
    add_work(
        stream, [copy](Random&) { copy.run(); }, NodeKind::copy);
  return cudaSuccess;
}

// ---- written values

template <class T>
CUresult write_value(const char* name, cudaStream_t stream, CUdeviceptr address, T value,
                     unsigned flags) {
  if (const cudaError_t refused = enter(name, stream)) return static_cast<CUresult>(refused);
  Block* block = nullptr;
  {
    std::lock_guard lock(state().memory);
    block = find_block(reinterpret_cast<const void*>(address), sizeof(T));
    if (block != nullptr && block->is_freed) block = nullptr;
  }
  if (block == nullptr || address % sizeof(T) != 0) {
    violate(std::string(name) + " to what is neither pinned nor device memory, or not aligned");
    return CUDA_ERROR_INVALID_VALUE;
  }
  count(state().counts.write_values);
  const bool is_ordered = (flags & CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) == 0;
  add_work(
      stream,
      [=](Random&) {
        check_kept("a written value in a block", block);
        __atomic_store_n(reinterpret_cast<T*>(address), value,
                         is_ordered ? __ATOMIC_RELEASE : __ATOMIC_RELAXED);
      },
      NodeKind::write_value);
  return CUDA_SUCCESS;
}

CUresult write_value_32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return write_value("cuStreamWriteValue32", stream, address, value, flags);
}

CUresult write_value_64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return write_value("cuStreamWriteValue64", stream, address, value, flags);
}

}  // namespace

extern "C" {

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute attribute, int value) {
  FAKE_CUDA_ENTER("cudaFuncSetAttribute");
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || value > static_cast<int>(host_grid::kMaxSharedBytes))
    return result(cudaErrorInvalidValue);
  auto& most = state().max_shared_bytes;
  most = std::max(most.load(), static_cast<std::size_t>(value));
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t call, void* argument) {
  FAKE_CUDA_ENTER("cudaLaunchHostFunc", stream);
  violate("cudaLaunchHostFunc is called");
  add_work(
      stream, [=](Random&) { call(argument); }, NodeKind::host_work);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  FAKE_CUDA_ENTER("cudaMemcpyAsync", stream);
  return add_copy({"cudaMemcpyAsync", to, from, bytes, nullptr, nullptr}, kind, stream);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                size_t bytes, cudaStream_t stream) {
  FAKE_CUDA_ENTER("cudaMemcpyPeerAsync", stream);
  if (!is_device(to_device) || !is_device(from_device)) return result(cudaErrorInvalidDevice);
  Copy copy{"cudaMemcpyPeerAsync", to, from, bytes, nullptr, nullptr};
  if (bytes == 0) return cudaSuccess;
  if (const cudaError_t error = find_sides(copy, cudaMemcpyDeviceToDevice)) return error;
  if (copy.to_block->device != to_device || copy.from_block->device != from_device) {
    violate("cudaMemcpyPeerAsync names another device than the memory's");
    return result(cudaErrorInvalidValue);
  }
  return add_copy(copy, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  FAKE_CUDA_ENTER("cudaMemsetAsync", stream);
  if (bytes == 0) return cudaSuccess;
  if (const cudaError_t error = check_capture(stream)) return error;
  Block* block = nullptr;
  {
    std::lock_guard lock(state().memory);
    block = find_block(to, bytes);
    if (block == nullptr || block->is_freed) {
      violate("cudaMemsetAsync uses what is no live block");
      return result(cudaErrorInvalidValue);
    }
  }
  add_work(
      stream,
      [=](Random&) {
        check_kept("a fill of a block", block);
        std::memset(to, value, bytes);
      },
      NodeKind::fill);
  return cudaSuccess;
}

// ---- the driver's entry points

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** call, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  FAKE_CUDA_ENTER("cudaGetDriverEntryPointByVersion");
  *call = nullptr;
  if (state().options.has_write_value) {
    if (std::strcmp(symbol, "cuStreamWriteValue32") == 0)
      *call = reinterpret_cast<void*>(&write_value_32);
    if (std::strcmp(symbol, "cuStreamWriteValue64") == 0)
      *call = reinterpret_cast<void*>(&write_value_64);
  }
  if (status != nullptr)
    *status = *call != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

}  // extern "C"
