// One parallel_for in progress: its blocks, the workers inside, and invitations that may come late.
//
// Ownership: a loop object belongs to the pool for its whole life and is lent to one caller at a
// time; `f` and the block count live on that caller's stack. An invitation is a job that names the
// loop object, and it may be run long after the loop it was meant for has ended.
//
// The steps C1 to C6 of the caller and I1 to I4 of an invited worker, and the argument for each
// invariant, are in Note [Parallel loops] in devices/NOTES.md.
//
// Invariants
// 1. No thread touches body, f or a block after the caller has returned.
// 2. A late invitation helps the loop object's next loop, if one is open. At most size()−1
//    invitations per loop object are ever queued.
// 3. The blocks' writes are published by I4 (release) to C6 (acquire).
// 4. The caller takes blocks from the first on, the others from the last on, until all are claimed.
#pragma once

#include <atomic>
#include <exception>

#include <troupe/devices/threads/worker_pool.hpp>

namespace troupe::detail {

/// See above. Made and lent by WorkerPool only.
class ParallelLoop {
 public:
  using Body = void (*)(const void* f, int block);

  /// C1–C6; `helpers` is how many other workers may help. Rethrows the first exception of a block.
  void run(WorkerPool& pool, int blocks, Body body, const void* f, int helpers);

  ParallelLoop* next_idle = nullptr;  // guarded by the pool while not lent

 private:
  static void accept(void* loop, Worker& worker);
  void work(bool is_caller);

  std::atomic<int> invited_{0};      // invitations queued and not begun; only the caller adds
  std::atomic<int> inside_{0};       // invited workers between I2 and I4; publishes their blocks
  std::atomic<bool> open_{false};    // publishes body_, f_, blocks_
  std::atomic<bool> failed_{false};  // claims error_ for the first block that throws
  // how many blocks, or attempts at more; publishes nothing
  alignas(64) std::atomic<int> claimed_{0};
  std::atomic<int> from_last_{0};  // how many of them the others took; publishes nothing
  int blocks_ = 0;
  Body body_ = nullptr;
  const void* f_ = nullptr;
  std::exception_ptr error_;  // written by the claimer of failed_, read by the caller after C6
};

}  // namespace troupe::detail
