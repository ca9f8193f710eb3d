// Run: the state of one run that its partitions share: feeds, fetches and outcome.
//
// If a run is over several nodes, each node has a `Run` for its own partitions, under one key. The
// node that started the run is its owner. The owner's `Run` answers the caller. It counts the other
// nodes like partitions: each leaves once, with the values that it fetched.
//
// Threads: partitions on any worker, and the caller. Protocol: every partition takes part once and
// leaves once it has drained. The first error, or the last partition to leave, settles the outcome.
// The caller is answered when the outcome is settled. After an error this is before the partitions
// have drained. Invariants: 1. the outcome is settled once (`outcome_` goes open → settling →
// settled, by compare-and-swap); 2. each fetch is written by one partition, before that partition
// leaves; 3. a run is destroyed when its partitions, its handle and its handed-over kernels have
// dropped their references.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include <troupe/actors/plan/plan.hpp>

namespace troupe::detail {

/// One run on all its nodes.
struct RunKey {
  // the incarnation of the node that started the run; 0: the run is on one node
  std::uint64_t owner = 0;
  std::uint64_t number = 0;  // counts the owner's runs over several nodes
  friend auto operator<=>(const RunKey&, const RunKey&) = default;
};

class CompiledPlan;
struct PlanActors;

/// Counts of a run: firings, and tokens of cut edges.
struct RunTotals {
  std::uint64_t fired = 0, sent = 0, received = 0;
};

class Run final : public Counted {
 public:
  /// `leavers`: partitions of this node and, at the owner, other nodes.
  Run(std::uint64_t id, std::uint64_t step, std::uint64_t seed, std::shared_ptr<const Plan> plan,
      std::vector<Tensor> feeds, int leavers)
      : plan_(std::move(plan)), feeds_(std::move(feeds)),
        fetches_(static_cast<std::size_t>(plan_->fetches)), places_(plan_->partitions.size()),
        left_(leavers) {
    info_.id = id;
    info_.step = step;
    info_.seed = seed;
  }

  /// Called once, when the last partition has left. A success is settled right after it, so the run
  /// is gone from the engine's tables when the caller is answered.
  std::function<void(Run&)> on_drained;
  /// Called once, when the run has failed, before its caller is answered. It cancels the run's
  /// waiters in states and notifies the other nodes, so the failed run cannot consume values that
  /// the caller produces next. It is called on the thread that made the run fail, possibly in a
  /// partition's turn: it may send to partitions, and must not wait for them. Its exceptions are
  /// dropped.
  std::function<void(Run&)> on_failed;
  // Key and `owners_id` are set only if the run is over several nodes, before the run is shared.
  RunKey key;
  // on a node that is not the owner: `info().id` at the owner; 0: this node owns the run
  std::uint64_t owners_id = 0;
  std::atomic<bool> is_named{false};       // publishes key to threads that inspect runs
  std::shared_ptr<CompiledPlan> compiled;  // holds the plan's actors
  PlanActors* troupe = nullptr;            // its actors
  /// The result of writing the file of `RunOptions::trace`. Invalid: no trace is asked for. Set
  /// before the run begins.
  std::shared_future<Status> traced;
  // zero of the times of the run's recorded events
  const std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  std::chrono::nanoseconds started{};  // on the engine's clock
  // when the engine checks whether the run has ended; zero: never. Guarded by the run table's mutex
  std::chrono::steady_clock::time_point due{};

  const Plan& plan() const { return *plan_; }
  /// `id` is unique in this engine.
  const RunInfo& info() const { return info_; }
  /// Returns the number that names the run in reports and recorded events: its owner's `id`, equal
  /// on all nodes of the run. Runs of several owners may have equal numbers.
  std::uint64_t number() const { return owners_id != 0 ? owners_id : info_.id; }
  const std::vector<Tensor>& feeds() const { return feeds_; }
  void set_fetch(std::int32_t i, Value value) {
    fetches_[static_cast<std::size_t>(i)] = std::move(value.tensor());
  }

  /// True the first time partition i asks; asked by that partition alone.
  bool enter(std::int32_t i) {
    return !std::exchange(places_[static_cast<std::size_t>(i)].has_entered, true);
  }

  /// True if the run has failed or was cancelled: firings that have not started skip their kernels.
  bool is_poisoned() const { return info_.cancelled.load(std::memory_order_acquire); }
  /// Settles the outcome as an error; false if it was settled before. The first call wins.
  bool fail(Status status);
  /// Counts a partition, or another node, that has left, drained or abandoned. The last one settles
  /// the outcome as a success if it is open.
  void leave();
  /// Stores the totals of a partition. Called once for each partition, before it or its node
  /// leaves.
  void has_done(std::int32_t partition, const RunTotals& all);
  /// Returns the totals of a partition that has left the run; empty if it has not left. Any thread.
  std::optional<RunTotals> done_by(std::size_t partition) const;
  /// Returns the firings of all partitions that have left.
  std::uint64_t fired() const;

  bool is_settled() const { return outcome_.load(std::memory_order_acquire) == kSettled; }
  /// Spins briefly, then sleeps until the outcome is settled.
  void wait() const;
  /// Valid once the run is settled or poisoned.
  const Status& status() const { return status_; }
  /// Moves the fetches out. Called once, after a success.
  std::vector<Tensor> take_fetches() { return std::move(fetches_); }

 private:
  enum Outcome : std::uint32_t { kOpen, kSettling, kSettled };

  bool settle(Status status);

  std::shared_ptr<const Plan> plan_;
  RunInfo info_;  // cancelled: publishes status_, as outcome_ does
  std::vector<Tensor> feeds_;
  std::vector<Tensor> fetches_;
  struct Place {
    bool has_entered = false;
    RunTotals done;
    std::atomic<bool> is_done{false};  // publishes `done`
  };
  // entry i is written by partition i; if that is on another node, by the thread that receives the
  // message that its node has left
  std::vector<Place> places_;
  Status status_;
  std::atomic<std::uint32_t> outcome_{kOpen};  // publishes status_ and fetches_
  // partitions and nodes that have yet to leave; publishes each partition's fetches to the last one
  std::atomic<int> left_;
};

}  // namespace troupe::detail
