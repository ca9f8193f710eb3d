// The one pool of threads: actors, heavy kernels and the blocks of one kernel all run here.
//
//   WorkerPool pool(2);
//   pool.submit({run, object});                      // soon, on this worker if called from one
//   pool.submit_elsewhere({run, object});            // heavy: any worker, now
//   pool.parallel_for(blocks, [&](int block) {...}); // all blocks done on return; the caller helps
//
//   WorkerPool stepped(Deterministic{.seed = 7});    // no threads: a test takes the steps
//   while (stepped.step()) {}
//
// Ownership and threads: the pool owns its workers and runs every job it was given, also those that
// jobs submit while it is being destroyed; only then are the threads joined. `submit`,
// `submit_elsewhere`, `parallel_for` and `counters`: any thread, until destruction. Nothing here
// depends on CAF; other layers attach their own objects to a pool's slots (`attach`).
//
// Invariants
// 1. A job runs exactly once. A full run ring overflows to the shared queue.
// 2. No thread sleeps while work that is worth its wake-up is visible: any job in the shared queue,
//    or a run ring of two or more. See Note [Lone jobs] in devices/NOTES.md.
// 3. After warm-up nothing allocates: rings are fixed, the shared queue and the loops are kept.
// 4. No wake-up is lost. See Note [Waking] in devices/NOTES.md.
// 5. While any worker is running a job and another is parked, one parked worker, the watcher,
//    sleeps for at most 8 ms at a time. See Note [Watching] in devices/NOTES.md.
// 6. At any time one thread acts as a given worker. See Note [Caller workers] in devices/NOTES.md.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <type_traits>
#include <vector>

#include <troupe/devices/threads/run_ring.hpp>

namespace troupe::detail {

class ParallelLoop;
class Poller;
class CallerWorker;
class WorkerPool;

/// Asks for a pool without threads whose jobs run one at a time in an order drawn from `seed`.
struct Deterministic {
  std::uint64_t seed = 0;
};

/// Counts of a pool's work since it was made. Sums of relaxed single-writer counters: each is exact
/// for work that happened before the call, none is a consistent cut.
struct PoolCounters {
  std::uint64_t jobs = 0;    ///< jobs finished
  std::uint64_t steals = 0;  ///< jobs taken from another worker's ring
  std::uint64_t parks = 0;   ///< times a worker went to sleep
  /// times a sleeping worker was woken by a submitter, a searcher or a caller worker
  std::uint64_t wakes = 0;
  std::uint64_t offers = 0;     ///< jobs that their worker gave to one that searched
  std::uint64_t searches = 0;   ///< times a worker, or a caller worker, had no work and searched
  std::uint64_t finds = 0;      ///< searches that found a job before their worker went to sleep
  std::uint64_t search_ns = 0;  ///< time of searches, without the sleep between them
  /// time that workers slept until something woke them; not while a caller worker had their slot
  std::uint64_t sleep_ns = 0;
  std::uint64_t wake_ns = 0;  ///< time from wake-ups until their threads ran
};

/// An object that workers without work poll between their looks at each other, for example for
/// devices whose work has ended.
class Poller {
 public:
  /// Does the work that is there, never blocks. Returns true if there was any. Called by any
  /// worker, also by several at once.
  virtual bool poll() = 0;

 protected:
  ~Poller() = default;
};

/// One slot to work in a pool, with its thread and the jobs it has ahead of it.
class Worker {
 public:
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Position in the pool, 0 to size()-1; never changes.
  int index() const { return index_; }
  WorkerPool& pool() const { return *pool_; }

  /// The worker that runs the calling thread's current job, or null outside of any pool.
  static Worker* current() { return current_; }

  /// True if jobs wait that this worker would run next. Only on this worker's slot.
  inline bool has_more() const;

  /// Puts `job` at the end of this worker's own ring. Only from a job this worker is running.
  inline void submit(Job job);

  /// Hands the jobs that wait behind this worker's job to a sleeping worker. Call it from that job,
  /// before work of ≥ 20 µs.
  inline void share();

  /// Gives the oldest job that waits behind this worker's job to a worker that searches; does
  /// nothing if none does. Call it from that job, before work of ≥ 0.5 µs.
  inline void offer();

 private:
  friend class CallerWorker;
  friend class WorkerPool;
  using Clock = std::chrono::steady_clock;
  struct Sighting {  // when a victim's count of finished jobs was first seen at this value
    std::uint64_t jobs = 0;
    Clock::time_point since{};
  };

  Worker(WorkerPool& pool, int index, bool threaded);
  void live();
  void execute(Job job);
  bool next(Job& job);
  bool search(Job& job);
  bool look_around(Job& job);
  void count_search(Clock::time_point began, bool found);
  void count_sleep();
  bool steal_from(Worker& victim, Job& job);
  void leave_search();
  void park();
  void lend();
  void sleep(bool watching);
  void keep_off(int core);
  void notify();

  static inline constinit thread_local Worker* current_ = nullptr;

  WorkerPool* const pool_;
  const int index_;
  RunRing ring_;
  alignas(64) std::atomic<std::uint64_t> jobs_{0};  // single writer; publishes nothing, counts
  std::atomic<std::uint64_t> steals_{0};            // same
  std::atomic<std::uint64_t> parks_{0};             // same
  std::atomic<std::uint64_t> offers_{0};            // same
  std::atomic<std::uint64_t> searches_{0};          // same
  std::atomic<std::uint64_t> finds_{0};             // same
  std::atomic<std::uint64_t> search_ns_{0};         // same
  std::atomic<std::uint64_t> wake_ns_{0};           // same
  std::atomic<std::uint64_t> sleep_ns_{0};          // written under idle_mutex_
  // when it parked; zero: not by itself, or it is not parked; guarded by idle_mutex_
  Clock::time_point parked_since_{};
  Clock::time_point notified_at_{};  // guarded by mutex_
  std::vector<Sighting> sightings_;  // by victim; own thread only
  unsigned tick_ = 0;
  // the worker's thread; the thread writes it before another can find it asleep
  pid_t thread_id_ = 0;
  // the cores it may run on, while `keep_off` keeps it off one; guarded by mutex_
  std::optional<cpu_set_t> allowed_;
  bool brief_ = false;  // the next search is short: it comes from the watch
  std::mutex mutex_;    // guards notified_ while this worker is parked
  std::condition_variable wake_;
  bool notified_ = false;
  std::thread thread_;
};

/// The pool. `size()` counts its workers; a deterministic pool has one worker and no thread.
class WorkerPool {
 public:
  /// Starts `workers` threads (at least 1; std::invalid_argument otherwise).
  explicit WorkerPool(int workers);
  /// Starts no thread; the caller runs the jobs by `step` and `run_all`, from one thread at a time.
  explicit WorkerPool(Deterministic how);
  /// Runs pending jobs, then joins the threads. Must not run on one of its own workers.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()); }
  bool deterministic() const { return deterministic_; }

  /// Runs `job` soon: on the calling worker after what it already has, or, from outside, on any.
  void submit(Job job);

  /// Runs `job` on whichever worker is free first, waking one if need be. For heavy work that must
  /// not wait for the caller's own job to end: ≥ 2–5 µs pays to a spinning worker, ≥ 50 µs to a
  /// parked one.
  void submit_elsewhere(Job job);

  /// Calls `f(block)` once for every block in [0, blocks), in parallel, and returns when all are
  /// done. The caller takes part, from inside or outside the pool; loops may nest. If calls throw,
  /// blocks not yet started are skipped and the first exception is rethrown here.
  template <class F>
  void parallel_for(int blocks, F&& f) {
    using Body = std::remove_reference_t<F>;
    run_blocks(
        blocks,
        [](const void* body, int block) { (*static_cast<Body*>(const_cast<void*>(body)))(block); },
        std::addressof(f));
  }

  /// Deterministic pool: runs one pending job chosen by the seed. False when none is pending.
  bool step();
  /// Deterministic pool: steps until nothing is pending; returns how many jobs ran.
  std::size_t run_all();
  /// Jobs in the shared queue; in a deterministic pool these are all pending jobs.
  std::size_t pending() const { return injected_.load(std::memory_order_seq_cst); }

  PoolCounters counters() const;

  /// Workers that search for work call `poller` from now on. One at a time.
  void poll_with(Poller& poller) { poller_.store(&poller, std::memory_order_seq_cst); }
  /// When it returns, no worker calls the poller any more.
  void stop_polling();

  /// Stores `user` in a free slot and returns its number; std::length_error when all kSlots are
  /// taken. A job function that has the slot number finds its layer again through `attached`.
  int attach(void* user);
  /// Frees the slot. No job that uses it may be pending.
  void detach(int slot);
  void* attached(int slot) const {
    return attached_[static_cast<std::size_t>(slot)].load(std::memory_order_acquire);
  }
  static constexpr int kSlots = 16;

 private:
  friend class Worker;
  friend class CallerWorker;
  friend class ParallelLoop;

  /// First-in first-out queue that grows and keeps its memory. Guarded by inject_mutex_.
  class JobQueue {
   public:
    std::size_t size() const { return size_; }
    void push(Job job);
    Job pop();
    Job& at(std::size_t i) { return slots_[(first_ + i) & (slots_.size() - 1)]; }

   private:
    std::vector<Job> slots_ = std::vector<Job>(256);
    std::size_t first_ = 0;
    std::size_t size_ = 0;
  };

  static constexpr std::uint64_t kSearching = 1;
  static constexpr std::uint64_t kParked = std::uint64_t{1} << 32;
  static std::uint64_t searching(std::uint64_t state) { return state & (kParked - 1); }
  static std::uint64_t parked(std::uint64_t state) { return state >> 32; }

  void stop();  // ends the threads that were started
  void poll();
  void inject(Job job, int copies = 1);
  bool take_injected(Job& job);
  void wake_if_asleep() {
    const auto state = state_.load(std::memory_order_seq_cst);
    if (parked(state) != 0 && searching(state) == 0) wake_one();
  }
  void wake_one();
  enum class Taker : std::uint8_t { thread, caller_worker };
  Worker* take_parked(Taker taker);
  Worker* take_searching();
  void give_back(Worker& worker);
  bool unpark(Worker& self);
  bool work_visible() const;
  bool own(const Worker* worker) const { return worker != nullptr && worker->pool_ == this; }

  void run_blocks(int blocks, void (*body)(const void*, int), const void* f);
  void run_blocks_seeded(int blocks, void (*body)(const void*, int), const void* f);
  ParallelLoop& borrow_loop();
  void give_back(ParallelLoop& loop);

  const bool deterministic_;
  std::vector<std::unique_ptr<Worker>> workers_;

  // searching | parked << 32; see the protocol above
  alignas(64) std::atomic<std::uint64_t> state_{0};
  alignas(64) std::atomic<std::size_t> injected_{0};  // publishes that the shared queue has jobs
  std::atomic<std::uint64_t> wakes_{0};               // counts; publishes nothing
  // A polling worker counts itself first and looks for the poller again then, so that stop_polling,
  // which takes the poller away first, finds no worker that still calls it (seq_cst).
  std::atomic<Poller*> poller_{nullptr};
  std::atomic<int> polling_{0};
  std::atomic<bool> stopping_{false};  // publishes that the destructor has begun
  // the worker that sleeps by the millisecond; written under idle_mutex_
  std::atomic<Worker*> watcher_{nullptr};
  std::atomic<int> watch_ms_{1};  // for how long; publishes nothing
  static constexpr std::uintptr_t kNobody = 0, kAnybody = 1;
  // kAnybody: a caller worker asks for a slot; else the worker that lends its own
  std::atomic<std::uintptr_t> wanted_{kNobody};

  std::mutex inject_mutex_;  // guards queue_
  JobQueue queue_;
  mutable std::mutex idle_mutex_;  // guards parked_, changes of watcher_ and times of sleep
  std::vector<Worker*> parked_;
  std::mutex loops_mutex_;  // guards idle_loops_ and loops_
  ParallelLoop* idle_loops_ = nullptr;
  std::vector<std::unique_ptr<ParallelLoop>> loops_;
  // deterministic pool: order of steps and blocks
  std::mt19937_64 choice_;
  std::array<std::atomic<void*>, kSlots> attached_{};  // publishes what was attached
};

/// A thread outside of the pool that acts as one of its idle workers until this object ends. The
/// caller works on the result instead of only waiting for it, which saves waking a worker and being
/// woken. Empty if no worker is idle, on a worker's own thread, and for a deterministic pool. With
/// `Stepped::drawn` a deterministic pool draws from its seed whether the object is empty: that is
/// one more choice of a schedule.
///
///   CallerWorker caller_worker(pool);
///   pool.submit(first);                       // to its own ring: wakes no thread
///   if (caller_worker) caller_worker.run_until([&] { return is_done(); });
class CallerWorker {
 public:
  enum class Stepped : std::uint8_t { never, drawn };  // in a deterministic pool
  explicit CallerWorker(WorkerPool& pool, Stepped stepped = Stepped::never);
  CallerWorker(const CallerWorker&) = delete;
  CallerWorker& operator=(const CallerWorker&) = delete;
  ~CallerWorker();

  explicit operator bool() const { return worker_ != nullptr; }

  /// Runs jobs, its own first, until `done()` holds between two of them, or no job has been found
  /// for as long as a worker searches before it parks.
  template <class Done>
  void run_until(Done&& done) {
    using Predicate = std::remove_reference_t<Done>;
    run(
        [](const void* condition) -> bool {
          return (*static_cast<Predicate*>(const_cast<void*>(condition)))();
        },
        std::addressof(done));
  }
  /// Runs jobs that this thread has submitted since, at most so many, and no others.
  void run_some(int most);

 private:
  void run(bool (*done)(const void*), const void* condition);

  Worker* worker_ = nullptr;
};

inline void Worker::submit(Job job) {
  const auto length = ring_.push(job);
  if (length == 1) return;
  if (length == 0) return pool_->inject(job);
  pool_->wake_if_asleep();
}

inline bool Worker::has_more() const { return ring_.length() != 0 || pool_->pending() != 0; }

inline void Worker::offer() {
  if (ring_.length() == 0 ||
      WorkerPool::searching(pool_->state_.load(std::memory_order_relaxed)) == 0)
    return;
  Job job;
  if (!ring_.pop(job)) return;  // a thief was faster
  offers_.store(offers_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  pool_->inject(job);
}

inline void Worker::share() {
  if (ring_.length() != 0) pool_->wake_if_asleep();
}

}  // namespace troupe::detail
