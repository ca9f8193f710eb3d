// RunTable: the runs of an engine in flight: their limit, their table, and the questions to runs
// whose timeout has passed.
//
//   RunTable::Slot slot = runs.admit(timeout, {});  // waits for room
//   runs.keep(run, std::move(slot));
//   ...
//   runs.forget(*run);                              // gives the slot back
//
// Threads: any; `admit` blocks. Ownership: the table keeps a run until `forget`; a slot that is
// dropped gives its room back.
// Invariants: 1. admitted runs, kept or not, are at most `max_runs`; parts of other nodes' runs
// count, but are never refused. 2. No run is kept after `close`. 3. A run is destroyed outside the
// lock, because it may be the last to hold its actors.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <troupe/actors/engine/engine_clock.hpp>
#include <troupe/actors/executor/partition_actor.hpp>
#include <troupe/actors/observe/inspection.hpp>

namespace troupe {

class RunTable {
 public:
  /// The right to have one more run in flight.
  class Slot {
   public:
    Slot(RunTable& table, std::chrono::nanoseconds left) : table_(&table), left_(left) {}
    Slot(Slot&& o) noexcept : table_(std::exchange(o.table_, nullptr)), left_(o.left_) {}
    Slot& operator=(Slot&&) = delete;
    ~Slot();
    /// The rest of the run's time-out; 0: it has none.
    std::chrono::nanoseconds left() const { return left_; }

   private:
    friend class RunTable;
    RunTable* table_;
    const std::chrono::nanoseconds left_;
  };

  /// How a caller waits for room.
  struct Waiting {
    bool is_worker = false;           // a worker must not wait: the runs need it
    std::function<void()> step = {};  // a deterministic engine's; empty: it sleeps
  };

  using Partitions = std::vector<LeanRef<PartitionActor>>;

  RunTable(int max_runs, EngineClock& clock)
      : max_runs_(static_cast<std::size_t>(max_runs)), clock_(clock) {}

  // ---- the life of a run

  /// Waits until another run may be in flight. Throws deadline_exceeded if that takes longer than
  /// `timeout` (0: none), resource_exhausted on a worker, and cancelled after `close`.
  Slot admit(std::chrono::nanoseconds timeout, const Waiting& waiting);
  /// Returns a number that no other run of this engine has.
  std::uint64_t next_id() { return next_id_.fetch_add(1, std::memory_order_relaxed); }
  /// Keeps an admitted run until `forget`. Throws cancelled after `close`.
  void keep(const Ref<Run>& run, Slot slot);
  /// Keeps the part of another node's run. Throws cancelled after `close`.
  void keep_part(const Ref<Run>& run);
  void forget(Run& run);
  /// Runs in flight, parts of other nodes' among them.
  std::size_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }
  /// Returns the runs that are kept, the oldest first.
  std::vector<Ref<Run>> live();

  // ---- the end of the engine

  /// Admits and keeps no more runs; returns the runs that are kept.
  std::vector<Ref<Run>> close();
  bool is_empty();
  void wait_until_empty();
  /// Returns the actors of a run's plan; none if they have ended.
  Partitions partitions_of(const Run& run);
  /// Drops the actors of a plan.
  void drop_partitions(PlanActors& troupe);

  // ---- runs whose timeout has passed

  /// A run that is asked after its timeout why it has not ended.
  struct Expired {
    Ref<Run> run;
    Partitions partitions;
    std::shared_ptr<Inspection> here;    // the answers of this node's partitions
    std::vector<RunSnapshot> elsewhere;  // the answers of other nodes
    std::size_t nodes = 0;               // other nodes that are asked
    bool is_new = false;                 // the caller must ask now
    bool is_early = false;               // before the timeout: nodes are asked whether they answer
  };
  /// Makes the clock call back with the run when `left` has passed, if it is kept. For a run over
  /// several nodes it also calls earlier, to find out which of them answer.
  void remind(Run& run, std::chrono::nanoseconds left);
  /// Begins to ask a run, or returns the answers so far. `answered` is called when the last
  /// partition has answered. Empty: the run has ended.
  std::optional<Expired> expire(std::uint64_t run, std::function<void()> answered);
  /// Adds another node's answer; false if the run has ended.
  bool add_answer(std::uint64_t run, const RunSnapshot& part);
  /// Counts a node that has answered before the run's timeout.
  void add_early_answer(std::uint64_t run);
  /// True if an expired run has all its answers.
  bool is_answered(std::uint64_t run);

 private:
  struct Question {
    std::shared_ptr<Inspection> here;
    std::vector<RunSnapshot> elsewhere;
    std::size_t nodes = 0;
    std::chrono::nanoseconds deadline{};  // the run's timeout; 0: its nodes are not asked early
    std::size_t heard = 0;                // nodes that have answered before the deadline
    bool was_early = false;
    bool is_answered() const { return here->is_complete() && elsewhere.size() == nodes; }
  };

  void keep_locked(const Ref<Run>& run);
  void leave_locked();
  void add_in_flight(int runs) {  // mutex_ is held
    in_flight_.store(in_flight_.load(std::memory_order_relaxed) + static_cast<std::size_t>(runs),
                     std::memory_order_relaxed);
  }

  const std::size_t max_runs_;
  EngineClock& clock_;
  std::atomic<std::uint64_t> next_id_{1};  // publishes nothing but itself
  // Written under mutex_, and read by callers that work on their run themselves.
  std::atomic<std::size_t> in_flight_{0};
  // Guards everything below, `Run::due`, and `PlanActors::partitions` against the engine's end.
  std::mutex mutex_;
  bool is_closed_ = false;
  std::condition_variable room_;     // there is room for another run
  std::condition_variable drained_;  // live_ is empty
  std::unordered_map<std::uint64_t, Ref<Run>> live_;
  decltype(live_)::node_type spare_;  // the node of the last run that ended, for the next
  std::unordered_map<std::uint64_t, Question> questions_;  // runs that were or will be asked
};

/// The status of a run that the end of its engine cancels.
Status shutting_down();

}  // namespace troupe
