#include <troupe/devices/tensor/allocator.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>

namespace troupe::detail {
namespace {

constexpr std::size_t kSmallest = 64;
constexpr std::size_t kLarge = std::size_t(1) << 20;
constexpr std::size_t kHugePage = std::size_t(2) << 20;

// Four classes between powers of two: at most a fifth of a block is wasted.
struct SizeClass {
  int index;
  std::size_t bytes;
};

SizeClass size_class(std::size_t bytes) {
  if (bytes <= kSmallest) return {0, kSmallest};
  int log2 = std::bit_width(bytes - 1) - 1;  // 2^log2 < bytes <= 2^(log2+1)
  std::size_t step = std::size_t(1) << (log2 - 2);
  std::size_t steps = (bytes - (std::size_t(1) << log2) + step - 1) / step;
  return {(log2 - 6) * 4 + static_cast<int>(steps), (std::size_t(1) << log2) + steps * step};
}

// Large blocks lie in huge pages of their own, middle ones share some: hundreds of values that a
// gradient saves touch few pages (an LSTM's training step: 2 to 3 % of its time). A shared page
// goes when all its blocks have. Threads: any; a simulated device gives back when its stream has
// got there.
class HostMemory final : public MemorySource {
 public:
  ~HostMemory() override {
    if (current_ && current_->blocks == 0) std::free(current_);
  }

  void* get(std::size_t bytes) override {
    if (is_middle(bytes)) return get_shared(bytes);
    if (bytes < kLarge) return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    return pages((bytes + kHugePage - 1) / kHugePage * kHugePage);
  }
  void put(void* memory, std::size_t bytes) noexcept override {
    if (!is_middle(bytes)) return std::free(memory);
    std::lock_guard lock(mutex_);
    auto* page =
        reinterpret_cast<Shared*>(reinterpret_cast<std::uintptr_t>(memory) & ~(kHugePage - 1));
    if (--page->blocks == 0 && page != current_) std::free(page);
  }
  // Memory that the system can give without swapping.
  std::uint64_t available() const override {
    constexpr char kLine[] = "MemAvailable: %llu kB";
    std::FILE* const file = std::fopen("/proc/meminfo", "re");
    if (!file) return 0;
    unsigned long long kibibytes = 0;
    for (char line[128]; kibibytes == 0 && std::fgets(line, sizeof line, file);)
      std::sscanf(line, kLine, &kibibytes);
    std::fclose(file);
    return std::uint64_t{kibibytes} << 10;
  }

 private:
  static constexpr std::size_t kSmallestShared = 4 << 10, kLargestShared = 256 << 10;
#if defined(__SANITIZE_ADDRESS__)
  static constexpr bool kShares = false;  // so that ASan sees what is written beyond a block
#else
  static constexpr bool kShares = true;
#endif
  struct alignas(64) Shared {  // at the start of its page
    std::size_t blocks = 0;
    std::size_t used = sizeof(Shared);
  };

  static bool is_middle(std::size_t bytes) {
    return kShares && bytes >= kSmallestShared && bytes <= kLargestShared;
  }
  static void* pages(std::size_t bytes) {
    void* memory = std::aligned_alloc(kHugePage, bytes);
    // advice only: a refusal costs speed, not truth
    if (memory) madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
  }
  void* get_shared(std::size_t bytes) {
    std::lock_guard lock(mutex_);
    if (!current_ || current_->used + bytes > kHugePage) {
      void* memory = pages(kHugePage);
      if (!memory) return nullptr;
      if (current_ && current_->blocks == 0) std::free(current_);
      current_ = new (memory) Shared;
    }
    void* block = reinterpret_cast<std::byte*>(current_) + current_->used;
    current_->used += (bytes + 63) / 64 * 64;
    ++current_->blocks;
    return block;
  }

  std::mutex mutex_;  // guards current_ and the counts in the pages
  Shared* current_ = nullptr;
};

class CachingAllocator final : public Allocator {
 public:
  CachingAllocator(std::unique_ptr<MemorySource> source, std::uint64_t limit)
      : source_(std::move(source)) {
    counters_.limit = limit;
  }
  ~CachingAllocator() override { trim(); }

  void* allocate(std::size_t bytes) override {
    SizeClass c = size_class(bytes);
    std::lock_guard lock(mutex_);
    ++counters_.allocations;
    if (!is_within_limit(c.bytes)) refuse(bytes);
    void* memory = nullptr;
    if (std::size_t(c.index) < cache_.size() && !cache_[c.index].empty()) {
      memory = cache_[c.index].back().memory;
      cache_[c.index].pop_back();
      counters_.cached -= c.bytes;
    } else {
      memory = fresh(c.bytes, bytes);
    }
    counters_.in_use += c.bytes;
    counters_.peak = std::max(counters_.peak, counters_.in_use);
    return memory;
  }

  void deallocate(void* memory, std::size_t bytes) noexcept override {
    SizeClass c = size_class(bytes);
    std::lock_guard lock(mutex_);
    counters_.in_use -= c.bytes;
    if (!kKeepBlocks) {
      source_->put(memory, c.bytes);
      return;
    }
    if (cache_.size() <= std::size_t(c.index)) cache_.resize(c.index + 1);
    cache_[c.index].push_back({memory, ++freed_});
    counters_.cached += c.bytes;
  }

  bool has_room(std::size_t bytes) const override {
    std::lock_guard lock(mutex_);
    return is_within_limit(size_class(bytes).bytes);
  }

  AllocatorCounters counters() const override {
    std::lock_guard lock(mutex_);
    return counters_;
  }

  std::uint64_t available() const override {
    const std::uint64_t of_source = source_->available();  // without the lock: it takes a while
    const AllocatorCounters now = counters();
    const std::uint64_t within = now.limit > now.in_use ? now.limit - now.in_use : 0;
    if (of_source == 0) return within;
    return now.limit ? std::min(within, of_source + now.cached) : of_source + now.cached;
  }

  // Returns large blocks without the lock, because that takes the system milliseconds. If many are
  // due, each call returns only some: the caller has other work to do.
  void age() override {
    constexpr std::size_t kMostBytes = std::size_t(1) << 30, kMostSmall = 1 << 14;
    std::size_t bytes = 0, small = 0;
    std::unique_lock lock(mutex_);
    const std::uint64_t old = std::exchange(freed_by_[ages_++ % kAges], freed_);
    const auto is_old = [old](const Cached& block) { return block.freed <= old; };
    for (std::size_t i = 0; i < cache_.size(); ++i) {
      if (class_bytes_of(static_cast<int>(i)) < kLarge) {
        const auto most = cache_[i].begin() + static_cast<std::ptrdiff_t>(
                                                  std::min(cache_[i].size(), kMostSmall - small));
        const auto end = std::find_if_not(cache_[i].begin(), most, is_old);
        small += static_cast<std::size_t>(end - cache_[i].begin());
        for (auto it = cache_[i].begin(); it != end; ++it) give_back(*it, cache_[i]);
        cache_[i].erase(cache_[i].begin(), end);
        continue;
      }
      while (bytes < kMostBytes && !cache_[i].empty() && is_old(cache_[i].front())) {
        bytes += class_bytes_of(static_cast<int>(i));
        void* const memory = cache_[i].front().memory;
        cache_[i].erase(cache_[i].begin());
        counters_.cached -= class_bytes_of(static_cast<int>(i));
        lock.unlock();
        source_->put(memory, class_bytes_of(static_cast<int>(i)));
        lock.lock();
      }
    }
  }

 private:
  struct Cached {
    void* memory;
    std::uint64_t freed;  // when, counted in blocks
  };
#if defined(__SANITIZE_ADDRESS__)
  static constexpr bool kKeepBlocks = false;  // so that ASan sees stale uses
#else
  static constexpr bool kKeepBlocks = true;
#endif

  bool is_within_limit(std::size_t class_bytes) const {
    return !counters_.limit || counters_.in_use + class_bytes <= counters_.limit;
  }

  void* fresh(std::size_t class_bytes, std::size_t asked) {
    ++counters_.misses;
    while (counters_.limit && counters_.in_use + counters_.cached + class_bytes > counters_.limit &&
           give_back_oldest()) {}
    void* memory = source_->get(class_bytes);
    if (!memory) {
      trim();
      memory = source_->get(class_bytes);
    }
    if (!memory) refuse(asked);
    return memory;
  }

  [[noreturn]] void refuse(std::size_t bytes) const {
    throw Error(
        Code::resource_exhausted,
        counters_.limit
            ? fmt::format("out of device memory: {} bytes wanted, {} of {} in use", bytes,
                          counters_.in_use, counters_.limit)
            : fmt::format("out of memory: {} bytes wanted, {} in use", bytes, counters_.in_use));
  }

  void trim() {
    for (std::vector<Cached>& blocks : cache_) {
      for (const Cached& block : blocks) give_back(block, blocks);
      blocks.clear();
    }
  }

  // Gives back no more than is needed: close to its limit a device would otherwise lose, again and
  // again, blocks that the next allocations would have found, and take cold pages instead. The
  // blocks freed longest ago belong to work that has moved on.
  bool give_back_oldest() {
    std::vector<Cached>* from = nullptr;
    for (std::vector<Cached>& blocks : cache_)
      if (!blocks.empty() && (!from || blocks.front().freed < from->front().freed)) from = &blocks;
    if (!from) return false;
    give_back(from->front(), *from);
    from->erase(from->begin());
    return true;
  }

  void give_back(const Cached& block, const std::vector<Cached>& of) {
    const std::size_t bytes = class_bytes_of(static_cast<int>(&of - cache_.data()));
    source_->put(block.memory, bytes);
    counters_.cached -= bytes;
  }

  static std::size_t class_bytes_of(int index) {
    if (index == 0) return kSmallest;
    int log2 = (index - 1) / 4 + 6, steps = (index - 1) % 4 + 1;
    return (std::size_t(1) << log2) + steps * (std::size_t(1) << (log2 - 2));
  }

  std::unique_ptr<MemorySource> source_;
  mutable std::mutex mutex_;                     // guards everything below
  std::vector<std::vector<Cached>> cache_;       // by size class, the latest freed at the back
  std::uint64_t freed_ = 0;                      // blocks
  std::array<std::uint64_t, kAges> freed_by_{};  // by each of the last calls of `age`
  std::size_t ages_ = 0;
  AllocatorCounters counters_;
};

}  // namespace

std::unique_ptr<Allocator> make_caching_allocator(std::unique_ptr<MemorySource> source,
                                                  std::uint64_t limit) {
  return std::make_unique<CachingAllocator>(std::move(source), limit);
}

std::unique_ptr<MemorySource> make_host_memory() { return std::make_unique<HostMemory>(); }

Allocator& host_allocator() {
  // Never destroyed: tensors in statics may outlive any order of destruction.
  static Allocator* heap = make_caching_allocator(make_host_memory()).release();
  return *heap;
}

}  // namespace troupe::detail
