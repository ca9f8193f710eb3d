// BlockPool: a free list of equally sized blocks; with it handles cost nanoseconds after warm-up.
//
//   void* block = BlockPool<sizeof(Body)>::take();   // 1–2 ns from the thread's own list
//   BlockPool<sizeof(Body)>::give(block);
//
// Threads: any thread may take and give any block. Each thread keeps a list of its own; lists that
// grow past two batches hand one to a shared stash, so that a thread that only frees feeds a thread
// that only takes. Invariants: 1. a block is in exactly one list or in use; 2. a thread's list
// holds at most 2 × kBatch blocks; 3. the stash is touched under its mutex only. A thread's list
// outlives the thread's other objects, so that objects destroyed after them may still give blocks
// back. Under ASan and TSan every block comes from malloc, so that stale uses are seen.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace troupe {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kPoolBlocks = false;
#else
inline constexpr bool kPoolBlocks = true;
#endif

template <std::size_t Bytes>
class BlockPool {
 public:
  static void* take() {
    if constexpr (!kPoolBlocks) return allocate();
    Local& mine = local();
    if (!mine.head && !refill(mine)) return allocate();
    Link* block = mine.head;
    mine.head = block->next;
    --mine.count;
    return block;
  }

  static void give(void* memory) noexcept {
    if constexpr (!kPoolBlocks) {
      std::free(memory);
      return;
    }
    Local& mine = local();
    if (!mine.head) drain_at_end();
    mine.head = new (memory) Link{mine.head};
    if (++mine.count >= 2 * kBatch) shed(mine);
  }

 private:
  static constexpr int kBatch = 64;
  static constexpr std::size_t kSize = (Bytes + 63) / 64 * 64;

  struct Link {
    Link* next;
  };
  struct Stash {
    std::mutex mutex;  // guards batches
    std::vector<Link*> batches;
  };
  // Nothing is destroyed here: statics that outlive the thread's own objects give blocks back
  // still.
  struct Local {
    Link* head = nullptr;
    int count = 0;
  };
  /// Frees a thread's list at its end. Blocks given back after that stay allocated.
  struct Drain {
    ~Drain() {
      Local& mine = local();
      while (mine.head) std::free(std::exchange(mine.head, mine.head->next));
      mine.count = 0;
    }
  };

  static void* allocate() {
    if (void* memory = std::aligned_alloc(64, kSize)) return memory;
    throw std::bad_alloc();
  }
  static Local& local() {
    static constinit thread_local Local mine;
    return mine;
  }
  [[gnu::noinline]] static void drain_at_end() { static thread_local Drain drain; }
  static Stash& stash() {
    static Stash* shared = new Stash;  // outlives every thread
    return *shared;
  }

  [[gnu::noinline]] static bool refill(Local& mine) {
    drain_at_end();
    Stash& shared = stash();
    std::lock_guard lock(shared.mutex);
    if (shared.batches.empty()) return false;
    mine.head = shared.batches.back();
    mine.count = kBatch;
    shared.batches.pop_back();
    return true;
  }

  [[gnu::noinline]] static void shed(Local& mine) noexcept {
    Link* batch = mine.head;
    Link* last = batch;
    for (int i = 1; i < kBatch; ++i) last = last->next;
    mine.head = last->next;
    last->next = nullptr;
    mine.count -= kBatch;
    Stash& shared = stash();
    std::lock_guard lock(shared.mutex);
    if (shared.batches.capacity() == shared.batches.size())
      shared.batches.reserve(2 * shared.batches.size() + 64);
    shared.batches.push_back(batch);
  }
};

}  // namespace troupe
