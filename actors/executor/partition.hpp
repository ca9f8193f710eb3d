// Partition: a part of a program on one device. It matches tokens by index, fires what is ready and
// delivers the results. An actor drives it.
//
//   deliver ─► last awaited token ─► ready ─► fire ─► kernel returns ─► deliver to successors …
//                                              │
//                                              ├─► heavy, and others too: handed to a worker ─┐
//                                              └─► kernel took a Completion ──────────────────┤
//                                                   KernelDone message to the actor ◄─────────┘
//
// `Partition` has the turn, the dispatch of messages, matching, and the life of frames and calls.
// Its parts have the rest: `RunStates`, `FramePool`, `CutEdges`, `KernelRunner`, `DeviceStream`,
// `PartitionObserver`; and in each `RunState` a `ReadyQueue` and a `CallTable`. README.md has the
// map, PROTOCOL.md the arguments.
//
// Threads: the actor's turn, but for the methods under 'any thread'. Invariants: 1. a node fires
// once an iteration, live or dead, after its last awaited token has arrived; 2. a slot is written
// by one token and emptied by its node's firing; 3. a partition leaves a run when everything has
// fired, kernel or none; an abandoned one, when no kernel of it is under way; 4. an iteration is
// given back only when no token for it can be in flight; 5. matching and firing allocate nothing
// once as many iterations and tokens have been in flight as are now.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <troupe/actors/executor/cut_edges.hpp>
#include <troupe/actors/executor/device_stream.hpp>
#include <troupe/actors/executor/frame_state.hpp>
#include <troupe/actors/executor/kernel_runner.hpp>
#include <troupe/actors/executor/partition_driver.hpp>
#include <troupe/actors/executor/partition_messages.hpp>
#include <troupe/actors/executor/partition_observer.hpp>
#include <troupe/actors/executor/run_failures.hpp>
#include <troupe/actors/executor/run_state.hpp>
#include <troupe/actors/plan/options.hpp>

namespace troupe::detail {

class Partition final : private CutEdges::Client {
 public:
  Partition(std::shared_ptr<const Plan> plan, std::int32_t index, Granularity granularity,
            int workers, PartitionDriver& driver);
  ~Partition();

  /// Handles a message. An exception, here or in `turn`, abandons the run that it met, whose counts
  /// may be wrong from then on.
  void receive(PartitionMessage& message);
  /// Called in a catch block of the driver, in a turn: tokens of the run could not be sent. The run
  /// fails, and is abandoned by messages.
  void give_up_later(const Ref<Run>& run) { abandon_elsewhere(run, true); }
  /// Fires up to `budget` nodes; true if more are ready.
  bool turn(int budget);
  /// Called instead of `turn`: nodes that the messages enabled fire in a later turn.
  void break_turn() { observer_.break_turn(); }
  /// The driver sends its batch, or drops it.
  void on_batch_sent() { edges_.on_batch_sent(); }
  bool is_idle() const { return runs_.is_idle(); }

  // ---- any thread

  const PartitionPlan& plan() const { return mine_; }
  const PartitionObserver& observer() const { return observer_; }
  const KernelRunner& kernels() const { return kernels_; }

 private:
  // messages: one overload for each alternative of PartitionMessage (partition.cpp)
  void handle(StartRun& message) { start(message.run); }
  void handle(KernelDone& message);
  void handle(Token& token);
  void handle(Grant& grant) { edges_.receive(grant); }
  void handle(StreamEventDone&) { stream_.event_done(); }
  void handle(Abandon& message) { abandon(message.run); }
  void handle(Inspect& question);
  void handle(NodeLost& lost);
  void handle(DeviceError& error) { observer_.record_device_error(error); }
  void start(const Ref<Run>& run);
  void end(RunState& run_state);

  // turn and firing (partition.cpp)
  void fire(IterationState& iteration, const PlanNode& node);
  void fire_switch(IterationState& iteration, const PlanNode& node);
  bool run_scalars(IterationState& iteration, const PlanNode& node);
  void finish(IterationState& iteration, const PlanNode& node, Value* outputs);
  void finish_dead(IterationState& iteration, const PlanNode& node);

  // matching (firing_rule.hpp, token_delivery.cpp)
  void deliver(IterationState& iteration, const Target& target, Value&& value);
  void deliver_dead(IterationState& iteration, const Target& target);
  void deliver_to_other(IterationState& iteration, const Target& target, Value&& value);
  void deliver_all(IterationState& iteration, TargetRange targets, Value&& value);
  void deliver_several(IterationState& iteration, TargetRange targets, Value&& value);
  void deliver_controls(IterationState& iteration, TargetRange targets);
  void deliver_all_dead(IterationState& iteration, TargetRange targets);
  void count_down(IterationState& iteration, std::int32_t node, std::int32_t dead);
  void merge(IterationState& iteration, std::int32_t node, std::int32_t input, Value* value);
  void enable(IterationState& iteration, const PlanNode& node);
  void fired(IterationState& iteration);
  void fetch(RunState& run_state, std::int32_t index, Value&& value);
  void fetch_dead(Run& run, std::int32_t index);

  // frames (iteration_window.cpp)
  void enter(IterationState& from, const PartitionPlan::Enter& enter, Value* value);
  void exit(IterationState& from, const PartitionPlan::Exit& exit, Value* value);
  void predicate(IterationState& iteration, Value&& value);
  void decide(IterationState& iteration, bool goes_on);
  void next(IterationState& from, std::int32_t loop, Value* value);
  void deliver_next_iteration(IterationState& iteration, std::int32_t loop, Value* value);
  FrameState& instance_at(IterationState& parent, std::int32_t frame) override;
  IterationState& open(FrameState& instance);
  void advance(FrameState& instance);
  IterationState* advance_one(FrameState& instance);
  IterationState* end(FrameState& instance);

  // cut edges (token_delivery.cpp)
  void arrive(IterationState& iteration, const PartitionPlan::Receive& receive, bool is_dead,
              Value&& value) override;
  void held_token_sent(IterationState& iteration) override;
  void receive_in(RunState& run_state, Token& token) override;

  // calls (partition_calls.cpp)
  void call(IterationState& from, const PlanNode& node);
  void deliver_result(IterationState& iteration, const PlanNode& node, Value* value);
  void deliver_call_end(const FrameState& callee);
  void receive_in_call(RunState& run_state, Token& token);
  void begin_part(CallSlot& slot, RunState& run_state, Token& token);
  IterationState* call_ended(RunState& run_state, FrameState& instance);
  void mark_drained(RunState& run_state);
  void leave_if_over(RunState& run_state);

  // runs that end early (partition_losses.cpp)
  void give_up(const Ref<Run>& run);
  /// Fails the run with the current exception, and sends `Abandon` to the other partitions of the
  /// plan on this cluster node; with `here_too` also to this one.
  void abandon_elsewhere(const Ref<Run>& run, bool here_too);
  void abandon(Ref<Run> run);
  void discard(RunState& run_state);
  void discard(FrameState& instance);

  const std::shared_ptr<const Plan> plan_;
  const PartitionPlan& mine_;
  const std::int32_t index_;
  const Granularity granularity_;
  PartitionDriver& driver_;
  PartitionObserver observer_;
  RunFailures failures_;
  DeviceStream stream_;  // outlives the members that may hold memory of its device
  RunStates runs_;
  FramePool frames_;
  KernelRunner kernels_;
  CutEdges edges_;
  // firings in the share of the current run, and how many of them are left; share_ 0: no run has a
  // share
  int share_ = 0, left_ = 0;
};

}  // namespace troupe::detail
