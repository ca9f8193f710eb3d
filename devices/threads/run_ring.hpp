// The jobs one worker has ahead of it: a bounded ring that its owner fills and any worker may
// empty.
//
//   RunRing ring(true);
//   ring.push({run, object});        // owner only; 0 means full, else the length with the new job
//   Job job;
//   ring.pop(job);                   // owner
//   ring.steal(job, 2);              // any thread: only if two or more jobs are there
//
// First in, first out for the owner too: two actors that wake each other for ever would starve a
// third one on the stack that a Chase-Lev deque is to its owner. It also makes push a plain store.
//
// Protocol (single producer, many consumers, after the Go scheduler's run queue):
//
//        head_ ──► [ job ][ job ][ job ] ◄── tail_
//        pop, steal: CAS head_ h → h+1        push: write the slot, then tail_ t → t+1
//
// 1. Both indices only grow (64 bits: no wrap-around, so a CAS cannot meet an old value again).
// 2. Exactly one CAS takes head_ from h to h+1; its caller owns job h.
// 3. A slot is overwritten only after its owner has seen head_ pass it (acquire, paired with the
//    releasing CAS). So the taker's reads of the slot, which precede its CAS, are of job h; a
//    reader that was overtaken may read two halves of different jobs, but then its CAS fails.
// 4. A length seen by the owner is never too small, because head_ only moves towards tail_.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

namespace detail {

class Worker;

}  // namespace detail

/// Work for a pool: a function and its object. Two words, copied freely, owns nothing. `run` must
/// not throw; a job that can fail carries its error in `object`.
struct Job {
  void (*run)(void* object, Worker& worker) = nullptr;
  void* object = nullptr;
};

/// Bounded single-producer multi-consumer queue of jobs.
class RunRing {
 public:
  static constexpr std::int64_t kCapacity = 1024;

  /// A ring that is not `enabled` is always full: all its jobs go to the pool's shared queue.
  explicit RunRing(bool enabled) : limit_(enabled ? kCapacity : 0) {}
  RunRing(const RunRing&) = delete;
  RunRing& operator=(const RunRing&) = delete;

  /// Owner: appends `job`. Returns 0 when full, else the length including it (never too small).
  /// When the length is 2 or more the store is sequentially consistent, as WorkerPool's wake-up
  /// protocol requires; a lone job wakes no worker and is published by a plain release store.
  std::int64_t push(Job job) {
    const auto tail = tail_.load(std::memory_order_relaxed);
    const auto length = tail - head_.load(std::memory_order_acquire) + 1;
    if (length > limit_) return 0;
    Slot& slot = slots_[tail & (kCapacity - 1)];
    slot.run.store(job.run, std::memory_order_relaxed);
    slot.object.store(job.object, std::memory_order_relaxed);
    tail_.store(tail + 1, length == 1 ? std::memory_order_release : std::memory_order_seq_cst);
    return length;
  }

  /// Owner: takes the oldest job.
  bool pop(Job& job) { return steal(job, 1); }

  /// Any thread: takes the oldest job if at least `at_least` are there.
  bool steal(Job& job, std::int64_t at_least) {
    auto head = head_.load(std::memory_order_acquire);
    while (tail_.load(std::memory_order_acquire) - head >= at_least) {
      const Slot& slot = slots_[head & (kCapacity - 1)];
      job = {slot.run.load(std::memory_order_relaxed), slot.object.load(std::memory_order_relaxed)};
      if (head_.compare_exchange_weak(head, head + 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire))
        return true;
    }
    return false;
  }

  /// Any thread: the number of waiting jobs; exact for the owner when no thief is at work.
  std::int64_t length() const {
    const auto head = head_.load(std::memory_order_seq_cst);
    return tail_.load(std::memory_order_seq_cst) - head;
  }

 private:
  struct Slot {  // published by tail_; atomic only because an overtaken thief may still be reading
    std::atomic<void (*)(void*, Worker&)> run{nullptr};
    std::atomic<void*> object{nullptr};
  };

  // publishes that the slots before it are free again
  alignas(64) std::atomic<std::int64_t> head_{0};
  alignas(64) std::atomic<std::int64_t> tail_{0};  // publishes the slots before it
  const std::int64_t limit_;
  alignas(64) std::array<Slot, kCapacity> slots_;
};

}  // namespace troupe
