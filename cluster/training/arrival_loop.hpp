// Runs a program whose gradients are applied as they arrive (ops/collectives/arrival_step.hpp): a
// thread for each replica computes gradients, the caller applies them.
//
//   ArrivalLoop loop(engine, graph, program, replicas, data, life);
//   std::vector<Tensor> fetched = loop.step(17);     // one update
//
// Each replica has one run in flight. Asynchronous: its i-th run takes batch i, from the number of
// its gradients that are applied or in the restored queue on, so no batch is lost and none is
// applied twice, after a loss too. With backups: a replica computes its batch of the current step,
// once, and leaves out steps that ended meanwhile.
//
// Invariant: at most ArrivalStep::kRoom gradients a replica are begun and not applied, so that no
// run waits for room in the queue, and `pause` waits for none that only an update could end.
//
// Threads: `step` one at a time. `data` is called by several threads, one at a time. An error of
// any run ends the loop: `step` throws it. Ownership: engine, graph and data must outlive it; the
// destructor cancels the runs in flight and joins the threads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/cluster/protocol/messages.hpp>
#include <troupe/ops/collectives/arrival_step.hpp>

namespace troupe::detail {

class ArrivalLoop {
 public:
  using Data = std::function<std::vector<Tensor>(std::int64_t step)>;
  /// `feeds`: as many of each replica, replica by replica; `fetches`: of an update. `life` is
  /// another number in each loop over the same variables. Plans that the replicas' threads make
  /// anew carry `fence`. Throws invalid_argument if the replicas do not divide the feeds, and as
  /// Engine::compile.
  ArrivalLoop(Engine& engine, const Graph& graph, const ArrivalStep& arrivals,
              const std::vector<Expr>& feeds, std::vector<Expr> fetches, Data data,
              std::int64_t life, Fence fence = {});
  ~ArrivalLoop();
  ArrivalLoop(const ArrivalLoop&) = delete;
  ArrivalLoop& operator=(const ArrivalLoop&) = delete;

  std::int64_t life() const { return life_; }
  /// The number of each replica's gradients that the queue was restored with. Before the first
  /// step.
  void restore(std::vector<std::int64_t> queued) { queued_ = std::move(queued); }
  /// Applies one update, and returns its fetches.
  std::vector<Tensor> step(std::int64_t step);
  /// Waits until each replica's run in flight has ended, and begins none until the next step: the
  /// states that replicas use belong to the gradients that are applied or in the queue. Throws
  /// deadline_exceeded, naming the replicas, after `patience`, and the error of a run.
  void pause(std::chrono::nanoseconds patience);

 private:
  struct Replica {
    Function program;
    RunHandle run;
    bool is_running = false;
    bool has_batch = false;  // it has begun one, whose gradient is not in the queue
    std::int64_t next = 0;   // its next batch; with backups: the first step that it has not begun
    std::thread thread;
  };

  /// Reads how far each replica was, and starts the threads: with the first step, when the
  /// variables have their values.
  void begin();
  void work(std::size_t r);
  /// Waits for work, and returns the replica's next batch; false: the loop ends.
  bool next_batch(std::size_t r, std::int64_t& batch);
  bool may_begin(std::size_t r) const;  // with mutex_ locked
  Tensor ticket(std::int64_t step) const;
  std::vector<Tensor> feeds_of(std::size_t r, std::int64_t batch);
  void fail(std::exception_ptr error);
  void cancel_all();  // with mutex_ locked

  Engine& engine_;
  const Variable counts_;
  const bool drops_late_;
  const std::size_t feeds_each_;
  const Data data_;
  const std::int64_t life_;
  const Fence fence_;
  Function update_;
  std::vector<std::int64_t> queued_;  // by replica, at the first step

  std::mutex data_mutex_;  // held while data_ runs
  std::mutex mutex_;       // guards all below, but for the replicas' programs and threads
  std::condition_variable changed_;
  std::int64_t current_ = -1;      // the step that is under way
  std::int64_t open_ = 0;          // asynchronous: gradients that are begun and not applied
  std::deque<std::size_t> turns_;  // replicas that wait for a batch, in order
  bool is_paused_ = false;
  bool is_ending_ = false;
  std::exception_ptr error_;  // the first
  RunHandle updating_;
  bool is_updating_ = false;
  std::vector<Replica> replicas_;
};

}  // namespace troupe::detail
