// One parallel_for in progress: its blocks, the workers inside, and invitations that may come late.
//
// A loop object belongs to the pool for its whole life and is lent to one caller at a time; `f` and
// the block count live on that caller's stack. An invitation is a job that names the loop object,
// and it may be run long after the loop it was meant for has ended:
//
//     caller                                      invited worker
//     ------                                      --------------
//     C1 write body, f, blocks, claimed = 0       I1 invited−1
//     C2 open = true                              I2 inside+1
//     C3 invited < wanted? invite more            I3 open? work on blocks
//     C4 work on blocks                           I4 inside−1
//     C5 open = false
//     C6 wait until inside = 0, return
//
// 1. No thread touches body, f or a block after the caller has returned: a worker that read open =
//    true at I3 had done I2 before C5 in the single order of the seq_cst operations, so C6 waits
//    for its I4; a worker that did I2 after C5 reads open = false and leaves.
// 2. A late invitation is not lost work: it finds the loop object's next loop, if one is open, and
//    helps there. The caller counts it as pending at C3 only if I1 has not happened, and then I3 is
//    after C2. So at most size()−1 invitations per loop object are ever queued, however many loops
//    run while the other workers are busy.
// 3. The blocks' writes are published by I4 (release) to C6 (acquire).
// 4. The caller takes blocks from the first on, the others from the last on, until all are claimed.
//    So a thread reads memory in sequence, and in the next loop it finds its own earlier writes in
//    its cache (layer normalisation of [256, 1024] on two workers: 0.85 of the time). A slow or
//    late thread makes no block wait.
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
