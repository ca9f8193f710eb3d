// KernelRunner: runs the kernels of a partition, in its turn or on other workers.
//
//   switch (kernels.run(iteration, node)) ...       // in the turn; outputs in `scratch()`
//   kernels.hand_over(iteration, node);             // on another worker
//   ... KernelDone{kernel} arrives ...
//   kernels.measure_end(*done.kernel); kernels.give_back(*done.kernel);
//
// A kernel that takes its Completion, that another worker runs, or that waits for a device ends
// outside of the turn: the end is a `KernelDone` message to the partition.
//
// A kernel that was measured at kHeavy or more is *heavy*. It waits while light nodes are ready, so
// that these can enable more of them. Then one alone runs in the turn; several, or one beside
// kernels under way, go to other workers. If the run's share of the turn is used up first, all
// waiting heavy kernels go to other workers.
//
// Threads: the partition's turn. `run_elsewhere` and `complete` run on any thread: they use their
// kernel and its inputs, count in `RunState::posted`, and post the kernel or hand it over;
// `cost_ns` and `is_light`: any thread. Ownership: `KernelRunner` owns all `PendingKernel`s and
// uses them again. Invariants: 1. a pending kernel ends once; 2. `RunState::under_way` counts those
// of a run that have not ended.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <troupe/actors/executor/device_stream.hpp>
#include <troupe/actors/executor/partition_driver.hpp>
#include <troupe/actors/executor/partition_observer.hpp>
#include <troupe/actors/executor/run_failures.hpp>
#include <troupe/actors/executor/run_state.hpp>
#include <troupe/actors/plan/options.hpp>
#include <troupe/controlflow/resident/resident_loop.hpp>

namespace troupe {

class KernelRunner;

/// A kernel that ends outside of its partition's turn.
struct PendingKernel {
  KernelRunner* runner = nullptr;
  IterationState* iteration = nullptr;
  const PlanNode* node = nullptr;  // null: a loop's predicate is on its way from a device
  std::vector<Value> outputs;
  Status status;
  std::int64_t nanoseconds = 0;  // time that a handed-over kernel took
  std::uint64_t put = 0;         // bytes that a handed-over one puts into lists, at most
  std::int64_t ran = 0;          // when a handed-over one started to run, on the steady clock
  // when it was handed over or, if it ends later, when its call returned; for snapshots
  std::chrono::nanoseconds began{};
  std::atomic<bool> waits_for_worker{false};  // handed over and not begun; for snapshots
  Ref<Run> run;                               // a handed-over kernel keeps its run
  std::unique_ptr<ResidentRun> execution;     // a resident loop's; the turn sets and clears it
  std::uint64_t opened = 0;                   // when the execution began, by the partition's clock
};

class KernelRunner final : public CompletionSink {
 public:
  KernelRunner(const Plan& plan, const PartitionPlan& mine, Granularity granularity, int workers,
               PartitionDriver& driver, DeviceStream& stream, PartitionObserver& observer,
               RunFailures& failures);

  /// Outputs of the firing under way.
  Value* scratch() { return scratch_.data(); }
  void clear_scratch() {
    for (Value& v : scratch_) v.reset();
  }
  void begin_turn() {
    is_long_ = false;
    heavy_ns_ = 0;
  }
  /// True if heavy kernels have taken kLongTurn: the turn must end before it fires more.
  bool is_turn_long() const { return is_long_; }
  bool is_heavy(const PlanNode& node) const {
    if (!has_heavy_ || node.kind != PlanNode::Kind::kernel) return false;
    const Cost& cost = costs_[static_cast<std::size_t>(node.index)];
    return cost.samples >= 2 && cost.nanoseconds.load(std::memory_order_relaxed) >= kHeavy;
  }

  enum class Outcome : std::uint8_t {
    done,       // the outputs are in `scratch`
    under_way,  // the kernel ends outside of the turn
    failed      // the run has failed, and the node is dead
  };
  Outcome run(IterationState& iteration, const PlanNode& node);
  /// Runs the kernel on another worker.
  void hand_over(IterationState& iteration, const PlanNode& node);
  /// No light node of the run is ready: makes its only heavy kernel the next node to fire, or hands
  /// all of them over.
  void dispatch_heavy(RunState& run_state);
  void hand_over_heavy(RunState& run_state);
  /// Copies a predicate from a device to the host; the end is that of a kernel. `node`: the Switch
  /// that needs it; null: the loop.
  void ask_device(IterationState& iteration, const PlanNode* node, const Tensor& predicate);

  /// Takes the cost of a kernel that has ended outside of the turn.
  void measure_end(const PendingKernel& kernel);
  void give_back(PendingKernel& kernel) { spare_.push_back(&kernel); }
  /// Returns all kernels that have not ended.
  std::vector<const PendingKernel*> under_way() const;

  /// Returns what a node's kernel takes, by its index; 0: it was not measured. Any thread.
  std::int64_t cost_ns(std::int32_t index) const {
    return costs_[static_cast<std::size_t>(index)].nanoseconds.load(std::memory_order_relaxed);
  }
  /// Returns the longest time, in ns, that a kernel of the node took to end outside of the turn.
  std::int64_t longest_ns(const PlanNode& node) const {
    return costs_[static_cast<std::size_t>(node.index)].longest;
  }
  /// True if every kernel was measured and is short, or is a program of scalars, and has operands
  /// of known shapes and one list at most. False for large plans, which are not examined. In a
  /// stepped engine all kernels are short: measured times would not be the seed's. Any thread.
  bool is_light() const;

  /// Fails the run of a resident loop that has thrown, and ends its execution.
  void fail_loop(PendingKernel& kernel, const Status& status);
  /// Ends the execution of a resident loop whose run was abandoned.
  void abandon_loop(PendingKernel& kernel);
  /// Ends the execution of a resident loop whose outputs were taken.
  void end_loop(PendingKernel& kernel);

  /// Runs a handed-over kernel on the calling thread, and posts its end.
  void run_elsewhere(PendingKernel& kernel);
  void complete(void* ticket, Status status, std::span<Value> outputs) override;

 private:
  // ns; waking a parked worker costs 7 µs, its arrival 22 µs
  static constexpr std::int64_t kHeavy = 20'000;
  // ns; a partition that a worker has taken over stays there while tokens come, so the first
  // hand-over may cost more than a kernel (InboxActor::linger)
  static constexpr std::int64_t kMedium = 500;
  static constexpr std::uint32_t kSampled = 1024;  // one firing in so many is timed
  // ns of heavy kernels after which a turn ends: a message waits for no longer than that, and one
  // kernel
  static constexpr std::int64_t kLongTurn = 10'000'000;

  struct Cost {
    // written by the turn, read by reports; publishes nothing
    std::atomic<std::int64_t> nanoseconds{0};
    std::int32_t samples = 0;
    std::int64_t longest = 0;  // ns; longest kernel that ended outside of the turn
  };

  KernelContext context(IterationState& iteration, const PlanNode& node, Value* outputs);
  Outcome run_loop(IterationState& iteration, const PlanNode& node);
  void start_loop(PendingKernel& kernel);
  void count_loop(const PendingKernel& kernel);
  bool advance_loop(PendingKernel& kernel);
  ResidentRun::Slice slice() const;
  void look_later(IterationState& iteration, const PlanNode& node, std::span<const Value> outputs);
  void measure(const PlanNode& node, std::int64_t nanoseconds, std::span<const Value> outputs,
               std::uint64_t put, bool in_turn);
  PendingKernel& spare();
  PendingKernel& take(IterationState& iteration, const PlanNode& node);
  void hand_over_newest(RunState& run_state);

  const Plan& plan_;
  const PartitionPlan& mine_;
  const Granularity granularity_;
  PartitionDriver& driver_;
  DeviceStream& stream_;
  PartitionObserver& observer_;
  RunFailures& failures_;
  const bool hands_over_;   // heavy kernels may go to other workers
  bool has_heavy_ = false;  // else no cost is looked at when a node is enabled
  bool is_long_ = false;
  std::int64_t heavy_ns_ = 0;  // ns of heavy kernels in this turn
  std::uint32_t tick_ = 0;
  std::vector<Value> scratch_;
  std::vector<Cost> costs_;  // by node
  std::vector<std::unique_ptr<PendingKernel>> pending_;
  std::vector<PendingKernel*> spare_;
};

}  // namespace troupe
