// Device memory, memory pools and pinned memory.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <troupe/test/support/cuda/fake_state.hpp>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) (static_cast<void>(p), static_cast<void>(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) (static_cast<void>(p), static_cast<void>(n))
#endif

using namespace fake_cuda;

// All functions here hold State::memory or are called with it held; a stream's thread takes no part
// but for `bury`.

namespace {

constexpr std::size_t kAlignment = 256;
constexpr int kFresh = 0xFF;

// The block's bytes, and at least one aligned piece behind them, which is poisoned.
std::size_t capacity_of(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
}

char* take_memory(std::size_t bytes) {
  const std::size_t capacity = capacity_of(bytes);
  char* p = static_cast<char*>(std::aligned_alloc(kAlignment, capacity));
  if (p != nullptr) ASAN_POISON_MEMORY_REGION(p + bytes, capacity - bytes);
  return p;
}

void give_memory_back(const Block& block) {
  ASAN_UNPOISON_MEMORY_REGION(block.data, capacity_of(block.bytes));
  std::free(block.data);
}

void bury(Block& block) {
  std::memset(block.data, kFresh, block.bytes);
  ASAN_POISON_MEMORY_REGION(block.data, block.bytes);
  block.is_buried.store(true, std::memory_order_release);
}

void raise(std::uint64_t& peak, std::uint64_t value) { peak = std::max(peak, value); }

void take_from_device(Device& device, std::uint64_t bytes) {
  device.allocated += bytes;
  raise(device.peak, device.allocated);
}

void shrink(CUmemPoolHandle_st& pool, std::uint64_t kept) {
  const std::uint64_t reserved = std::max(pool.used, std::min(kept, pool.reserved));
  state().devices[pool.device].allocated -= pool.reserved - reserved;
  pool.reserved = reserved;
}

// True if the device has the bytes, which then are taken from it.
bool charge(int device, CUmemPoolHandle_st* pool, std::uint64_t bytes) {
  State& s = state();
  Device& d = s.devices[device];
  std::uint64_t missing = bytes;
  if (pool != nullptr) {
    const std::uint64_t spare = pool->reserved - pool->used;
    missing = bytes > spare ? bytes - spare : 0;
  }
  if (missing > s.options.memory - d.allocated) return false;
  take_from_device(d, missing);
  if (pool != nullptr) {
    pool->reserved += missing;
    pool->used += bytes;
    raise(pool->reserved_peak, pool->reserved);
    raise(pool->used_peak, pool->used);
  }
  ++d.live_blocks;
  count(s.counts.allocations);
  return true;
}

void discharge(const Block& block) {
  Device& d = state().devices[block.device];
  --d.live_blocks;
  if (block.pool == nullptr) {
    d.allocated -= block.bytes;
    return;
  }
  block.pool->used -= block.bytes;
  // The driver gives back at the next synchronisation; here at once.
  if (!block.pool->is_alive) shrink(*block.pool, 0);
  else if (block.pool->reserved > block.pool->threshold) shrink(*block.pool, block.pool->threshold);
}

// A device or pinned block, or null. Its memory is not filled yet.
Block* make_block(int device, CUmemPoolHandle_st* pool, std::size_t bytes) {
  State& s = state();
  std::lock_guard lock(s.memory);
  if (device != kPinned && !charge(device, pool, bytes)) return nullptr;
  char* data = take_memory(bytes);
  if (data == nullptr) return nullptr;
  if (device == kPinned) s.pinned_bytes += bytes;
  s.records.push_back(std::make_unique<Block>(data, bytes, device, pool));
  return s.blocks[data] = s.records.back().get();
}

// The oldest freed blocks leave once more is kept than the options say. Their burial must have
// passed, which then is visible.
void drop_oldest() {
  State& s = state();
  while (s.freed_bytes > s.options.kept_freed_bytes && !s.freed.empty()) {
    Block& block = *s.freed.front();
    if (!block.is_buried.load(std::memory_order_acquire)) return;
    s.freed.pop_front();
    s.freed_bytes -= block.bytes;
    s.blocks.erase(block.data);
    give_memory_back(block);
  }
}

// The live block that starts at p, now freed; null, and a violation, if there is none.
Block* end_block(const char* name, void* p, bool is_pinned) {
  State& s = state();
  std::lock_guard lock(s.memory);
  const auto it = s.blocks.find(static_cast<char*>(p));
  if (it == s.blocks.end() || (it->second->device == kPinned) != is_pinned ||
      it->second->is_freed) {
    violate(std::string(name) + (it != s.blocks.end() && it->second->is_freed
                                     ? " of a block that was freed"
                                     : " of what is no such block"));
    return nullptr;
  }
  Block& block = *it->second;
  block.is_freed = true;
  s.freed.push_back(&block);
  s.freed_bytes += block.bytes;
  if (is_pinned) s.pinned_bytes -= block.bytes;
  else discharge(block);
  drop_oldest();
  return &block;
}

cudaError_t allocate_async(const char* name, void** p, std::size_t bytes, CUmemPoolHandle_st* pool,
                           cudaStream_t stream) {
  if (const cudaError_t error = check_not_capturing(name, stream)) return error;
  if (bytes == 0) return *p = nullptr, cudaSuccess;
  Block* block = make_block(pool->device, pool, bytes);
  if (block == nullptr) return result(cudaErrorMemoryAllocation);
  // In the stream's order: work of another stream that comes too early loses what it writes.
  stream->push([block](Random&) { std::memset(block->data, kFresh, block->bytes); }, true);
  *p = block->data;
  return cudaSuccess;
}

std::uint64_t* statistic(CUmemPoolHandle_st& pool, cudaMemPoolAttr attribute) {
  switch (attribute) {
    case cudaMemPoolAttrReleaseThreshold: return &pool.threshold;
    case cudaMemPoolAttrReservedMemCurrent: return &pool.reserved;
    case cudaMemPoolAttrReservedMemHigh: return &pool.reserved_peak;
    case cudaMemPoolAttrUsedMemCurrent: return &pool.used;
    case cudaMemPoolAttrUsedMemHigh: return &pool.used_peak;
    default: return nullptr;
  }
}

cudaError_t enter_pool(const char* name, cudaMemPool_t pool) {
  if (pool != nullptr && pool->is_alive) return enter(name, pool->device);
  violate(std::string(name) + " uses a pool that was destroyed");
  return result(cudaErrorInvalidValue);
}

}  // namespace

Block* fake_cuda::find_block(const void* p, std::size_t bytes) {
  State& s = state();
  const char* first = static_cast<const char*>(p);
  auto it = s.blocks.upper_bound(first);
  if (it == s.blocks.begin()) return nullptr;
  Block* block = std::prev(it)->second;
  return first + bytes <= block->data + block->bytes ? block : nullptr;
}

void fake_cuda::free_all_memory() {
  State& s = state();
  std::lock_guard lock(s.memory);
  auto is_kept = [](const Block& block) { return block.device == kPinned && !block.is_freed; };
  std::erase_if(s.blocks, [&](const auto& entry) {
    if (is_kept(*entry.second)) return false;
    give_memory_back(*entry.second);
    return true;
  });
  std::erase_if(s.records, [&](const auto& block) { return !is_kept(*block); });
  s.freed.clear();
  s.freed_bytes = 0;
  for (Device& device : s.devices) {
    device.allocated = device.peak = device.live_blocks = 0;
    device.peers.clear();
    CUmemPoolHandle_st& pool = *device.default_pool;
    pool.threshold = pool.used = pool.used_peak = pool.reserved = pool.reserved_peak = 0;
  }
}

extern "C" {

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  FAKE_CUDA_ENTER("cudaMemGetInfo");
  State& s = state();
  std::lock_guard lock(s.memory);
  *total = s.options.memory;
  *free = s.options.memory - s.devices[current_device()].allocated;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** p, size_t bytes) {
  FAKE_CUDA_ENTER("cudaMalloc");
  if (const cudaError_t error = check_no_capture("cudaMalloc")) return error;
  *p = nullptr;
  if (bytes == 0) return cudaSuccess;
  Block* block = make_block(current_device(), nullptr, bytes);
  if (block == nullptr) return result(cudaErrorMemoryAllocation);
  std::memset(block->data, kFresh, bytes);
  *p = block->data;
  return cudaSuccess;
}

cudaError_t cudaFree(void* p) {
  FAKE_CUDA_ENTER("cudaFree");
  if (p == nullptr) return cudaSuccess;
  if (const cudaError_t error = check_no_capture("cudaFree")) return error;
  Block* block = end_block("cudaFree", p, false);
  if (block == nullptr) return result(cudaErrorInvalidValue);
  wait_for_device(block->device);  // as the driver does
  bury(*block);
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** p, size_t bytes, cudaStream_t stream) {
  FAKE_CUDA_ENTER("cudaMallocAsync", stream);
  return allocate_async("cudaMallocAsync", p, bytes,
                        state().devices[stream->device].default_pool.get(), stream);
}

cudaError_t cudaMallocFromPoolAsync(void** p, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  FAKE_CUDA_ENTER("cudaMallocFromPoolAsync", stream);
  if (pool == nullptr || !pool->is_alive) return enter_pool("cudaMallocFromPoolAsync", pool);
  return allocate_async("cudaMallocFromPoolAsync", p, bytes, pool, stream);
}

cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) {
  FAKE_CUDA_ENTER("cudaFreeAsync", stream);
  if (p == nullptr) return cudaSuccess;
  if (const cudaError_t error = check_not_capturing("cudaFreeAsync", stream)) return error;
  Block* block = end_block("cudaFreeAsync", p, false);
  if (block == nullptr) return result(cudaErrorInvalidValue);
  stream->push([block](Random&) { bury(*block); }, true);
  return cudaSuccess;
}

// ---- memory pools

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  FAKE_CUDA_ENTER("cudaMemPoolCreate");
  const int device = properties->location.id;
  if (properties->allocType != cudaMemAllocationTypePinned ||
      properties->location.type != cudaMemLocationTypeDevice || !is_device(device))
    return result(cudaErrorInvalidValue);
  State& s = state();
  std::lock_guard lock(s.handles);
  *pool = &s.pools.emplace_back(device);
  count(s.counts.live_pools);
  return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  FAKE_CUDA_ENTER("cudaMemPoolDestroy", pool != nullptr ? pool->device : current_device());
  if (pool == nullptr || !pool->is_alive) return enter_pool("cudaMemPoolDestroy", pool);
  std::lock_guard lock(state().memory);
  pool->is_alive = false;  // live blocks return their memory when they are freed
  shrink(*pool, 0);
  count(state().counts.live_pools, -1);
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (const cudaError_t error = enter_pool("cudaMemPoolSetAttribute", pool)) return error;
  if (attribute == cudaMemPoolReuseFollowEventDependencies ||
      attribute == cudaMemPoolReuseAllowOpportunistic ||
      attribute == cudaMemPoolReuseAllowInternalDependencies)
    return cudaSuccess;
  std::lock_guard lock(state().memory);
  std::uint64_t wanted = 0;
  std::memcpy(&wanted, value, sizeof wanted);
  if (attribute == cudaMemPoolAttrReleaseThreshold) pool->threshold = wanted;
  else if (wanted != 0) return result(cudaErrorInvalidValue);
  else if (attribute == cudaMemPoolAttrReservedMemHigh) pool->reserved_peak = pool->reserved;
  else if (attribute == cudaMemPoolAttrUsedMemHigh) pool->used_peak = pool->used;
  else return result(cudaErrorInvalidValue);
  return cudaSuccess;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (const cudaError_t error = enter_pool("cudaMemPoolGetAttribute", pool)) return error;
  std::lock_guard lock(state().memory);
  const std::uint64_t* found = statistic(*pool, attribute);
  if (found != nullptr) {
    std::memcpy(value, found, sizeof *found);
    return cudaSuccess;
  }
  const int is_on = 1;  // reuse
  std::memcpy(value, &is_on, sizeof is_on);
  return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t kept) {
  if (const cudaError_t error = enter_pool("cudaMemPoolTrimTo", pool)) return error;
  std::lock_guard lock(state().memory);
  shrink(*pool, kept);
  return cudaSuccess;
}

// ---- pinned memory

cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned) {
  FAKE_CUDA_ENTER("cudaHostAlloc");
  if (const cudaError_t error = check_no_capture("cudaHostAlloc")) return error;
  *p = nullptr;
  if (bytes == 0) return cudaSuccess;
  Block* block = make_block(kPinned, nullptr, bytes);
  if (block == nullptr) return result(cudaErrorMemoryAllocation);
  std::memset(block->data, kFresh, bytes);
  *p = block->data;
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** p, size_t bytes) {
  return cudaHostAlloc(p, bytes, cudaHostAllocDefault);
}

// At once: a copy that still uses the memory is found, though the driver would wait for it.
cudaError_t cudaFreeHost(void* p) {
  FAKE_CUDA_ENTER("cudaFreeHost");
  if (p == nullptr) return cudaSuccess;
  if (const cudaError_t error = check_no_capture("cudaFreeHost")) return error;
  Block* block = end_block("cudaFreeHost", p, true);
  if (block == nullptr) return result(cudaErrorInvalidValue);
  bury(*block);
  return cudaSuccess;
}

}  // extern "C"
