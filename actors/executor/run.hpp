// Runs: what one run changes that is common to its partitions: its feeds, its fetches, its outcome.
//
// Over several nodes each has a Run of its own for the partitions it has, under one key. The
// owner's, whose caller is answered, counts the other nodes as it counts partitions: each leaves
// once, with what it fetched.
//
// Threads: partitions on any worker, and the caller. Protocol: every partition takes part once and
// leaves once it has drained; the first error, or the last partition to leave, settles the outcome;
// the caller is answered when it is settled, which for an error is before the partitions drain.
// Invariants: 1. the outcome is settled once (`outcome_` goes open → settling → settled, by
// compare-and-swap); 2. each fetch is written by one partition, before that partition leaves;
// 3. a run is destroyed when its partitions, its handle and its handed-over kernels let go.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <vector>

#include <troupe/actors/plan/plan.hpp>

namespace troupe::detail {

/// One run on all its nodes.
struct RunKey {
  // the incarnation of the node that started it; 0: the run is of one node
  std::uint64_t owner = 0;
  std::uint64_t number = 0;  // among the owner's runs over several nodes
  friend auto operator<=>(const RunKey&, const RunKey&) = default;
};

struct PlanTroupe;

/// What has been done of a run: firings, and tokens of cut edges.
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

  /// Called once, when the last partition has left; a success is settled right after it, so that a
  /// caller who is answered finds the run gone from the engine's books.
  std::function<void(Run&)> on_drained;
  /// Called once, when the run has failed, before its caller is answered: what waits in states for
  /// it gives up, and its other nodes hear of it, so that nothing that the caller does next is
  /// taken by what he was told has ended. On whatever thread made the run fail, possibly in a
  /// partition's turn: it may send to partitions, and must not wait for them. What it throws is
  /// lost.
  std::function<void(Run&)> on_failed;
  // Of a run over several nodes, set before anybody else sees it.
  RunKey key;
  // at its other nodes: `info().id` at its owner; 0: it is this node's own
  std::uint64_t owners_id = 0;
  std::atomic<bool> is_named{false};  // publishes key to those who look at runs from outside
  // Of any run.
  PlanTroupe* troupe = nullptr;  // lives as long as `on_drained`
  /// Whether the file of `RunOptions::trace` was written, once it is known; invalid: none is asked
  /// for. Set before the run begins.
  std::shared_future<Status> traced;
  // what its recorded events go by
  const std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  std::chrono::nanoseconds started{};  // on the engine's clock
  // when the engine looks whether it has ended; zero: never. Guarded by the run table's mutex
  std::chrono::steady_clock::time_point due{};

  const Plan& plan() const { return *plan_; }
  /// `id` is this engine's, and tells the run from all others here.
  const RunInfo& info() const { return info_; }
  /// What the run is called and recorded by, the same on all its nodes: its owner's number. Runs of
  /// several owners may share one.
  std::uint64_t number() const { return owners_id != 0 ? owners_id : info_.id; }
  const std::vector<Tensor>& feeds() const { return feeds_; }
  void set_fetch(std::int32_t i, Value value) {
    fetches_[static_cast<std::size_t>(i)] = std::move(value.tensor());
  }

  /// True the first time partition i asks; asked by that partition alone.
  bool enter(std::int32_t i) {
    return !std::exchange(places_[static_cast<std::size_t>(i)].has_entered, true);
  }

  /// The run has failed or was cancelled: firings that have not started skip their kernels.
  bool is_poisoned() const { return info_.cancelled.load(std::memory_order_acquire); }
  /// Settles the outcome as an error; false if it was settled before. The first to come wins.
  bool fail(Status status);
  /// A partition has drained, or another node has. The last one settles the outcome as a success.
  void leave();
  /// What a partition has done, before it leaves, or the node that it is on; said once.
  void has_done(std::int32_t partition, const RunTotals& all);
  /// The same, for those who ask of a run that a partition has left; on any thread. Nothing: it has
  /// not.
  std::optional<RunTotals> done_by(std::size_t partition) const;
  /// By all that have left it.
  std::uint64_t fired() const;

  bool is_settled() const { return outcome_.load(std::memory_order_acquire) == kSettled; }
  /// Spins briefly, then sleeps until the outcome is settled.
  void wait() const;
  /// Once the run is settled or poisoned.
  const Status& status() const { return status_; }
  /// After a success, once.
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
  // entry i belongs to partition i; that of one elsewhere to whoever hears that its node has left
  std::vector<Place> places_;
  Status status_;
  std::atomic<std::uint32_t> outcome_{kOpen};  // publishes status_ and fetches_
  // to leave; publishes each partition's fetches to the last
  std::atomic<int> left_;
};

}  // namespace troupe::detail
