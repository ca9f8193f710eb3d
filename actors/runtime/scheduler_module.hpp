// Runs CAF's actors on Troupe's pool of threads, in unmodified CAF.
//
//   WorkerPool pool(2);
//   caf::actor_system_config config;
//   SchedulerModule::load(config, pool);
//   caf::actor_system system(config);             // stock and lean actors now run on `pool`
//
//   WorkerPool pool(Deterministic{.seed = 7});    // the same, but a test takes every step,
//   ...                                           // one message each,
//   pool.step();
//   SchedulerModule::of(system)->advance_time(1s);  // and time is virtual
//
// Ownership and threads: the pool outlives the actor system; several systems may share one pool (up
// to WorkerPool::kSlots), which is how a test steps several nodes from one seed. The system's
// destructor must not run on a worker of the pool. See Note [Scheduler] in actors/NOTES.md.
//
// Invariants
// 1. Submitting a resumable gives the module one strong reference to it. It is released when
//    `resume` returns `done` or `awaiting_message`, and kept across `resume_later`, which puts the
//    resumable behind what its worker has already.
// 2. After `stop` no job of this system is in the pool, running or pending. Actors that still had
//    one were ended with `exit_reason::user_shutdown`, as in stock CAF. See Note [Ending a system]
//    in actors/NOTES.md.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/detail/test_actor_clock.hpp>
#include <caf/detail/thread_safe_actor_clock.hpp>
#include <caf/execution_unit.hpp>
#include <caf/resumable.hpp>
#include <caf/scheduler/abstract_coordinator.hpp>

#include <troupe/actors/runtime/lean_actor.hpp>
#include <troupe/devices/threads/worker_pool.hpp>

namespace troupe {

class Printer;

/// CAF's scheduler on a WorkerPool.
class SchedulerModule final : public caf::scheduler::abstract_coordinator {
 public:
  /// Makes systems built from `config` run on `pool`. `scheduler.max-threads` is ignored,
  /// `scheduler.max-throughput` honoured (a deterministic pool takes one message a step).
  static void load(caf::actor_system_config& config, WorkerPool& pool);

  /// The module of `system`, or null if that runs on another scheduler.
  static SchedulerModule* of(caf::actor_system& system);

  SchedulerModule(caf::actor_system& system, WorkerPool& pool);
  ~SchedulerModule() override;

  WorkerPool& pool() const { return pool_; }

  /// Makes `job` run soon: on the calling worker if it is one of this pool, else on any. Takes over
  /// one strong reference.
  void enqueue(caf::resumable* job) override;

  /// Runs `job` at once, on the worker's slot of this pool that the calling thread has. Takes over
  /// one strong reference.
  void run_here(caf::resumable* job);

  /// Jobs submitted to this module and not finished. Exact only while nothing runs.
  std::uint64_t outstanding() const;

  /// Deterministic pool only: moves the virtual clock, which makes timeouts and delayed messages
  /// due. Returns how many were triggered.
  std::size_t advance_time(std::chrono::nanoseconds by);

  caf::actor_clock& clock() noexcept override;

 protected:
  void init(caf::actor_system_config& config) override;
  void start() override;
  void stop() override;

 private:
  /// The interface of a worker to the actors of this system that it runs.
  class Unit final : public caf::execution_unit {
   public:
    Unit(caf::actor_system& system, SchedulerModule& module)
        : execution_unit(&system), module_(module) {}
    void exec_later(caf::resumable* job) override;

    // Written by the worker that owns the unit; publish that its earlier jobs are submitted,
    // finished.
    alignas(64) std::atomic<std::uint64_t> submitted{0};
    std::atomic<std::uint64_t> finished{0};

   private:
    SchedulerModule& module_;
  };

  using RunJob = void (*)(void* object, Worker& worker);
  template <int Slot>
  static void run_job(void* object, Worker& worker);
  static RunJob run_job_of(int slot);
  void run(caf::resumable* job, Unit& unit);
  void end(caf::resumable* job);
  void submit_here(Worker& worker, caf::resumable* job);
  void submit_from_outside(caf::resumable* job);
  template <class Condition>
  void run_until(Condition met);

  WorkerPool& pool_;
  const int slot_;
  const RunJob run_job_;
  std::vector<std::unique_ptr<Unit>> units_;  // by worker index
  std::atomic<bool> stopping_{false};         // publishes that jobs are to be ended, not resumed
  // jobs submitted by other threads; orders against stopping_
  std::atomic<std::uint64_t> from_outside_{0};
  std::atomic<std::uint64_t> ended_outside_{0};  // jobs of from_outside_ that were ended at once
  caf::detail::thread_safe_actor_clock real_clock_;
  caf::detail::test_actor_clock virtual_clock_;
  std::thread clock_thread_;
  LeanRef<Printer> printer_;
  // CAF's own actors, which end while their system does. With these references they are destroyed
  // in `stop`, after the workers; CAF orders that by counts in its library, where TSan cannot see
  // them.
  std::array<caf::strong_actor_ptr, 2> servers_;
};

}  // namespace troupe
