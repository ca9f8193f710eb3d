// NodePool: memory for messages, in fixed-size pieces that move from the sender's thread to the
// receiver's.
//
//   void* piece = NodePool<64>::take();
//   NodePool<64>::give(piece);           // on any thread
//
// With a free list per thread alone a producer would allocate for ever, while the free pieces pile
// up at its consumer. So each thread keeps two magazines of up to kMagazine pieces (Bonwick and
// Adams, "Magazines and Vmem", 2001), and exchanges full ones through a shared depot, with one lock
// in kMagazine messages:
//
//   thread A, sends                     depot               thread B, receives
//   take: loaded ► spare ► depot ► new  at most kDepot full give: loaded ► spare ► depot ► delete
//
// Invariants: a thread holds at most 2 × kMagazine free pieces, the depot at most kDepot magazines;
// beyond that memory goes back to the allocator. A thread that ends returns its pieces.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <utility>

namespace troupe {

/// Pieces of `Bytes` bytes, aligned as `operator new` aligns.
template <std::size_t Bytes>
class NodePool {
 public:
  static constexpr int kMagazine = 64;
  static constexpr std::size_t kDepot = 256;

  static void* take() {
    Cache& cache = cache_;
    if (cache.loaded.count == 0 && !refill(cache)) return allocate();
    return cache.loaded.pop();
  }

  static void give(void* piece) noexcept {
    Cache& cache = cache_;
    if (cache.loaded.count >= cache.limit && !make_room(cache)) return release(piece);
    cache.loaded.push(static_cast<Piece*>(piece));
  }

  /// Pieces obtained from the allocator by all threads since the start.
  static std::uint64_t allocations() { return allocations_.load(std::memory_order_relaxed); }

 private:
  struct Piece {
    Piece* next;
  };
  static_assert(Bytes >= sizeof(Piece));

  struct Magazine {
    Piece* top = nullptr;
    int count = 0;

    void push(Piece* piece) {
      piece->next = std::exchange(top, piece);
      ++count;
    }
    void* pop() {
      --count;
      return std::exchange(top, top->next);
    }
  };

  struct Cache {
    Magazine loaded, spare;
    // kMagazine once a guard stands at the thread's end; 0 before, and after the thread's end
    int limit = 0;
    bool ended = false;  // the guard has run: later pieces go straight to the allocator
  };

  struct Depot {
    std::mutex mutex;  // guards the rest
    std::array<Magazine, kDepot> full{};
    std::size_t count = 0;

    bool put(Magazine& magazine) {
      const std::lock_guard guard(mutex);
      if (count == kDepot) return false;
      full[count++] = std::exchange(magazine, {});
      return true;
    }
    bool get(Magazine& magazine) {
      const std::lock_guard guard(mutex);
      if (count == 0) return false;
      magazine = full[--count];
      return true;
    }
  };

  static bool refill(Cache& cache) {
    if (cache.ended) return false;
    if (cache.limit == 0) stand_guard(cache);
    if (cache.spare.count != 0) std::swap(cache.loaded, cache.spare);
    return cache.loaded.count != 0 || depot_.get(cache.loaded);
  }

  /// Leaves `loaded` with room; false when the piece has to go back to the allocator.
  static bool make_room(Cache& cache) noexcept {
    if (cache.limit == 0) {
      if (cache.ended) return false;
      stand_guard(cache);
      return true;  // nothing has been loaded yet
    }
    if (cache.spare.count != 0 && !depot_.put(cache.spare)) empty(cache.spare);
    std::swap(cache.loaded, cache.spare);
    return true;
  }

  static void stand_guard(Cache& cache) noexcept {
    struct Guard {
      Cache* cache = nullptr;
      ~Guard() {
        for (auto* magazine : {&cache->loaded, &cache->spare})
          if (magazine->count != 0 && !depot_.put(*magazine)) empty(*magazine);
        cache->limit = 0;
        cache->ended = true;
      }
    };
    static thread_local Guard guard;
    guard.cache = &cache;
    cache.limit = kMagazine;
  }

  static void empty(Magazine& magazine) noexcept {
    while (magazine.count != 0) release(magazine.pop());
  }

  static void* allocate() {
    allocations_.fetch_add(1, std::memory_order_relaxed);
    return ::operator new(Bytes);
  }
  static void release(void* piece) noexcept { ::operator delete(piece); }

  static inline constinit thread_local Cache cache_{};
  static inline constinit Depot depot_{};
  static inline constinit std::atomic<std::uint64_t> allocations_{0};  // counts; publishes nothing
};

}  // namespace troupe
