#include <troupe/devices/cuda/runtime/memory.hpp>

#include <map>
#include <mutex>

#include <troupe/devices/cuda/runtime/call.hpp>
#include <troupe/devices/cuda/runtime/queue.hpp>

namespace troupe::cuda {
namespace {

// A memory pool whose blocks stay with the process until it is trimmed: the driver allocates
// nothing once the work has warmed up.
class PoolMemory final : public MemorySource {
 public:
  explicit PoolMemory(Queue& compute) : compute_(compute) {
    const OnDevice on(compute.device());
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = compute.device();
    check(cudaMemPoolCreate(&pool_, &properties), "making a memory pool");
    std::uint64_t never = UINT64_MAX;
    check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &never),
          "setting up a memory pool");
  }
  ~PoolMemory() override { cudaMemPoolDestroy(pool_); }

  void* get(std::size_t bytes) override {
    const OnDevice on(compute_.device());
    void* memory = nullptr;
    cudaError_t error = cudaMallocFromPoolAsync(&memory, bytes, pool_, compute_.stream());
    if (error == cudaErrorMemoryAllocation) {
      // Pieces of another size that the memory pool keeps stand in the way.
      cudaGetLastError();
      cudaMemPoolTrimTo(pool_, 0);
      error = cudaMallocFromPoolAsync(&memory, bytes, pool_, compute_.stream());
    }
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    compute_.check(error, "allocating GPU memory");
    return memory;
  }
  void put(void* memory, std::size_t) noexcept override {
    try {
      const OnDevice on(compute_.device());
      cudaFreeAsync(memory, compute_.stream());
    } catch (...) {  // a failed device: its memory goes with the process
    }
  }
  // Free memory of the GPU, with the blocks that the memory pool keeps.
  std::uint64_t available() const override {
    try {
      const OnDevice on(compute_.device());
      std::size_t free = 0, total = 0;
      std::uint64_t reserved = 0, used = 0;
      if (cudaMemGetInfo(&free, &total) == cudaSuccess &&
          cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved) ==
              cudaSuccess &&
          cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, &used) == cudaSuccess)
        return free + (reserved > used ? reserved - used : 0);
      cudaGetLastError();
    } catch (...) {  // a failed device
    }
    return 0;
  }

 private:
  Queue& compute_;
  cudaMemPool_t pool_ = nullptr;
};

class PoisonedMemory final : public Allocator {
 public:
  PoisonedMemory(Queue& compute, std::unique_ptr<Allocator> inner)
      : compute_(compute), inner_(std::move(inner)) {}
  void* allocate(std::size_t bytes) override {
    void* const memory = inner_->allocate(bytes);
    poison(memory, bytes);
    return memory;
  }
  void deallocate(void* memory, std::size_t bytes) noexcept override {
    poison(memory, bytes);
    inner_->deallocate(memory, bytes);
  }
  bool has_room(std::size_t bytes) const override { return inner_->has_room(bytes); }
  AllocatorCounters counters() const override { return inner_->counters(); }
  std::uint64_t available() const override { return inner_->available(); }
  void age() override { inner_->age(); }

 private:
  void poison(void* memory, std::size_t bytes) noexcept try {
    const OnDevice on(compute_.device());
    if (bytes > 0) compute_.set(memory, 0xFF, bytes);
  } catch (...) {  // a failed device
  }

  Queue& compute_;
  const std::unique_ptr<Allocator> inner_;
};

// The pinned blocks. Blocks are few: the cache requests size classes.
struct PinnedBlocks {
  std::mutex mutex;  // guards ends
  std::map<const std::byte*, const std::byte*> ends;
  static PinnedBlocks& all() {
    static auto* const blocks = new PinnedBlocks;
    return *blocks;
  }
};

class PinnedMemory final : public MemorySource {
 public:
  void* get(std::size_t bytes) override {
    void* memory = nullptr;
    const cudaError_t error = cudaHostAlloc(&memory, bytes, cudaHostAllocPortable);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check(error, "allocating pinned host memory");
    PinnedBlocks& blocks = PinnedBlocks::all();
    const std::lock_guard lock(blocks.mutex);
    const auto* const begin = static_cast<const std::byte*>(memory);
    blocks.ends[begin] = begin + bytes;
    return memory;
  }
  void put(void* memory, std::size_t) noexcept override {
    {
      PinnedBlocks& blocks = PinnedBlocks::all();
      const std::lock_guard lock(blocks.mutex);
      blocks.ends.erase(static_cast<const std::byte*>(memory));
    }
    cudaFreeHost(memory);
  }
};

}  // namespace

std::unique_ptr<Allocator> make_device_memory(Queue& compute, std::uint64_t limit, bool poisons) {
  auto memory = make_caching_allocator(std::make_unique<PoolMemory>(compute), limit);
  if (!poisons) return memory;
  return std::make_unique<PoisonedMemory>(compute, std::move(memory));
}

Allocator& pinned_memory() {
  static Allocator* const memory =
      make_caching_allocator(std::make_unique<PinnedMemory>()).release();
  return *memory;
}

bool is_pinned(const void* data, std::size_t bytes) {
  PinnedBlocks& blocks = PinnedBlocks::all();
  const auto* const begin = static_cast<const std::byte*>(data);
  const std::lock_guard lock(blocks.mutex);
  auto it = blocks.ends.upper_bound(begin);
  if (it == blocks.ends.begin()) return false;
  --it;
  return begin + bytes <= it->second;
}

}  // namespace troupe::cuda
