// PartitionObserver: everything that a partition counts, records and reports, and the clock of its
// turns. It decides nothing that is computed.
//
//   observer.message_received();                  // the partition's clock
//   const std::uint64_t began = observer.begin_turn();
//   ... fire ...
//   observer.end_turn(began, run, fired);
//   observer.answer(question, {runs, frames, kernels});
//
// It owns the flight recorder, the counters of loops, edges and nodes, the tracer of loop
// predicates and the last answer. A snapshot reads the other parts of the partition through
// `PartitionView`.
//
// Threads: the partition's turn, but for the methods under 'any thread'. Invariants: 1. without a
// trace or a recent snapshot a firing costs one test of `looks_closer`; 2. live firings are not
// counted: they are the opened iterations without those in which the node has not fired, its dead
// firings and its skipped ones.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <troupe/actors/executor/frame_state.hpp>
#include <troupe/actors/executor/partition_counters.hpp>
#include <troupe/actors/executor/partition_driver.hpp>
#include <troupe/actors/executor/predicate_tracer.hpp>
#include <troupe/actors/executor/resident_tracer.hpp>
#include <troupe/actors/executor/run_state.hpp>
#include <troupe/actors/observe/recorder.hpp>
#include <troupe/actors/observe/work_account.hpp>
#include <troupe/devices/device/activity.hpp>

namespace troupe {

class KernelRunner;
struct ActorCounters;
struct EdgeCounters;
namespace detail {
struct RunPart;
}  // namespace detail

/// The parts of a partition that a snapshot reads, between two firings.
struct PartitionView {
  const RunStates& runs;
  const FramePool& frames;
  const KernelRunner& kernels;
};

class PartitionObserver {
 public:
  PartitionObserver(const Plan& plan, const PartitionPlan& mine, std::int32_t index,
                    PartitionDriver& driver);

  // ---- the clock of the partition

  /// Called before a message is handled. Reads the clock for few messages.
  void message_received() {
    if (heard_ != 0 && !recorder_.traces() && ++heard_by_look_ != kMessagesALook) return;
    look_at_clock(heard_ = ticks());
    heard_by_look_ = 0;
  }
  /// The next turn does not count from the last message.
  void break_turn() { heard_ = 0; }
  /// Returns the ticks at which the turn began: with the first message, or now.
  std::uint64_t begin_turn() {
    std::uint64_t began = std::exchange(heard_, 0);
    if (began == 0) look_at_clock(began = ticks());
    looks_closer_ = tracer_.is_active() || recorder_.traces();
    if (looks_closer_) last_tick_ = ticks();
    return began;
  }
  /// A turn that fired something has ended.
  void end_turn(std::uint64_t began, std::uint64_t run, int fired);
  /// The partition has more to do, or no run: the time until the next message is no wait.
  void not_parked() { parked_ = 0; }
  void look_at_clock(std::uint64_t tick) {
    looked_ = tick;
    if (has_loops_) now_ = driver_.clock().at(tick);
  }
  /// A kernel or a copy is about to take time.
  void forget_clock() { looked_ = 0; }
  /// The time by which loops are measured.
  std::uint64_t now() const { return now_; }
  bool has_loops() const { return has_loops_; }

  // ---- firings

  /// True if firings must go through `observe`, or the turn is to end.
  bool looks_closer() const { return looks_closer_; }
  void look_closer() { looks_closer_ = true; }
  /// Fires the node with `fire`, observed or as an event of its own.
  template <class Fire>
  void observe(const IterationState& iteration, const PlanNode& node, Fire fire);
  /// True while a firing that is an event of its own is under way.
  bool is_drawn() const { return is_drawn_; }
  void next_value(const IterationState& iteration, std::int32_t loop, const Value& value) {
    tracer_.observe_next(iteration, loop, value);
  }
  void kernel_begins(std::uint64_t run, const PlanNode& node) {
    running_run_.store(run, std::memory_order_relaxed);
    running_.store(&node, std::memory_order_relaxed);
    looked_ = 0;
  }
  void kernel_returned() { running_.store(nullptr, std::memory_order_relaxed); }
  void kernel_timed(const PlanNode& node, std::int64_t ns, std::uint64_t bytes, bool in_turn) {
    work_.timed(static_cast<std::size_t>(node.index), ns, bytes, in_turn);
  }
  void dead_firing(const PlanNode& node) { ++dead_[static_cast<std::size_t>(node.index)]; }
  /// The node does not fire, because its run was abandoned.
  void skipped(const PlanNode& node) { ++skipped_[static_cast<std::size_t>(node.index)]; }

  // ---- runs, frames and edges

  void run_started() {
    failed_.store(-1, std::memory_order_relaxed);
    add(loop_counters_[0].instances);
  }
  /// Adds the time since the last call for that instance. Called before the number of its open
  /// iterations changes.
  void count_time(FrameState& instance) {
    if (now_ <= instance.counted) return;
    LoopCounters& c = loop_counters_[static_cast<std::size_t>(instance.number)];
    const std::uint64_t passed = now_ - std::exchange(instance.counted, now_);
    add(c.time, passed);
    add(c.iterations_time, passed * static_cast<std::uint64_t>(instance.opened - instance.oldest));
  }
  /// The iteration has opened.
  void iteration_opened(const FrameState& instance, std::int64_t number) {
    LoopCounters& counters = loop_counters_[static_cast<std::size_t>(instance.number)];
    const auto are_open = static_cast<std::uint64_t>(instance.opened - instance.oldest);
    add(number == 0 ? counters.instances : counters.iterations);
    if (are_open > counters.most_open.load(std::memory_order_relaxed))
      counters.most_open.store(are_open, std::memory_order_relaxed);
  }
  /// An execution of a resident loop was open for so long, by the partition's clock.
  void loop_ended(const PlanNode& node, std::uint64_t open) { resident_time_[node.index] += open; }
  void window_waited(const FrameState& instance) {
    add(loop_counters_[static_cast<std::size_t>(instance.number)].window_waits);
  }
  void call_blocked() { add(blocked_calls_); }
  void token_held(bool is_by_bytes) {
    add(held_tokens_);
    if (is_by_bytes) add(held_by_bytes_);
  }
  void bytes_on_way(std::uint64_t bytes) {
    if (bytes > most_on_way()) most_on_way_.store(bytes, std::memory_order_relaxed);
  }
  void tokens_sent(std::int32_t send, std::uint64_t tokens, std::uint64_t bytes) {
    add(sent_[static_cast<std::size_t>(send)].tokens, tokens);
    add(sent_[static_cast<std::size_t>(send)].bytes, bytes);
  }
  /// A token, or several that came as one, was received.
  void token_received(const Token& token) {
    add(received_[static_cast<std::size_t>(token.receive)].tokens,
        static_cast<std::uint64_t>(token.times));
    if (parked_ != 0) record_wait(token);
    record_received(token);
  }

  // ---- the flight recorder

  bool traces() const { return recorder_.traces(); }
  void record_kernel(const IterationState& iteration, const PlanNode& node, std::int64_t start,
                     std::int64_t took);
  /// Records an execution of a resident loop, with its last iteration, after `took` ns.
  void record_loop(const PendingKernel& kernel, std::int64_t took);
  /// Records a kernel that ended outside of the turn, after `took` ns.
  void record_ended(const PendingKernel& kernel, std::int64_t took);
  /// Records work that a device has timed.
  void record_timed(const TimedWork& work);
  void record_copy(const Run& run, std::int32_t source, std::uint64_t began);
  /// Records a failure, unless the run had failed before.
  void record_failure(const Run& run, std::int32_t source);
  void record_device_error(const DeviceError& error);
  /// Records `count` tokens of a run-length token, from `first` on.
  void record_sent(const Token& token, const PartitionPlan::Send& to, std::int32_t first = 0,
                   std::int32_t count = 1);

  // ---- snapshots

  /// Answers an inspection, and observes for a while the values that decide loops.
  void answer(const Inspect& question, const PartitionView& view);

  // ---- any thread

  void node_failed(std::int32_t source) { failed_.store(source, std::memory_order_relaxed); }
  /// By frame; the first stands for the outside of loops.
  const std::vector<LoopCounters>& loop_counters() const { return loop_counters_; }
  /// Tokens that waited for a grant or for room.
  std::uint64_t held_tokens() const { return held_tokens_.load(std::memory_order_relaxed); }
  /// Tokens that were granted and waited for room.
  std::uint64_t held_by_bytes() const { return held_by_bytes_.load(std::memory_order_relaxed); }
  /// The most bytes that large tokens of an edge and instance had in flight.
  std::uint64_t most_on_way() const { return most_on_way_.load(std::memory_order_relaxed); }
  /// Calls that waited until others as deep had ended.
  std::uint64_t blocked_calls() const { return blocked_calls_.load(std::memory_order_relaxed); }
  /// Returns the node whose kernel runs in the turn; empty: none. While the partition's actor
  /// lives.
  std::string busy_with() const;
  /// Returns the run for which a kernel ran last, by its number in the engine.
  std::uint64_t busy_for() const { return running_run_.load(std::memory_order_relaxed); }
  /// Returns the last answer about a run if nothing has happened to that run here since, and
  /// nothing can happen before a token or a grant comes.
  std::optional<detail::RunPart> cached_if_current(std::uint64_t run) const;

 private:
  static constexpr int kMessagesALook = 16;
  struct CachedAnswer;
  class OrphanWait;
  class UnderWay;
  /// A token that a node still awaits.
  struct Missing {
    std::int32_t source = -1;  // node of the program; -1: none, or not known
    std::int32_t input = -1;   // the awaiting node's; -1: a control edge
  };

  void record_wait(const Token& token);
  void record_received(const Token& token);
  std::uint64_t flow_of(const Token& token, std::int32_t partition, std::int32_t receive,
                        std::int32_t ahead) const;
  void find_sources();
  detail::RunPart part_of(const RunState& run_state, const PartitionView& view);
  void add_resident_loops(const PendingKernel& kernel, detail::RunPart& part);
  void trace_resident(const PendingKernel& kernel, detail::OpenLoop& loop);
  static bool has_resident_loop(const RunState& run_state, const PartitionView& view);
  /// Iterations of resident loops, by the node's index. One answer has one count of them.
  using ResidentIterations = std::map<std::int32_t, std::uint64_t>;
  ResidentIterations resident_iterations() const;
  std::vector<ActorCounters> actor_counters(const PartitionView& view,
                                            const ResidentIterations& iterations);
  std::vector<EdgeCounters> edge_counters() const;
  std::vector<LoopSnapshot> loop_snapshots(const PartitionView& view, const TickClock& clock,
                                           const ResidentIterations& iterations);
  LoopSnapshot resident_snapshot(const PlanNode& node, std::uint64_t iterations,
                                 const PartitionView& view, const TickClock& clock) const;
  bool waits_outside(const PendingKernel& kernel) const;
  Missing missing_input(const IterationState& iteration, const PlanNode& node,
                        const UnderWay& under_way) const;

  const Plan& plan_;
  const PartitionPlan& mine_;
  const std::int32_t index_;
  PartitionDriver& driver_;
  const bool has_loops_;

  FlightRecorder recorder_;
  PredicateTracer tracer_;
  // resident loops under way, by kernel and by when it began
  std::map<std::pair<const PendingKernel*, std::int64_t>, std::shared_ptr<ResidentTracer>>
      resident_tracers_;
  bool looks_closer_ = false;
  bool is_drawn_ = false;
  // ticks: when the firing began, or the last one that was drawn ended; of a turn that looks closer
  std::uint64_t last_tick_ = 0;
  // ticks: when the last message came, or one a few before it; 0: a turn has begun since
  std::uint64_t heard_ = 0;
  int heard_by_look_ = 0;     // messages since then
  std::uint64_t looked_ = 0;  // ticks: now, within a few firings of scalars; 0: not known
  std::uint64_t now_ = 0;     // the driver's time when the clock was last read
  // ticks: when the last turn ended with an idle run in flight; 0: it did not
  std::uint64_t parked_ = 0;

  std::vector<LoopCounters> loop_counters_;
  // by the index of a resident loop's node: how long executions that have ended were open
  std::map<std::int32_t, std::uint64_t> resident_time_;
  std::atomic<std::uint64_t> held_tokens_{0}, held_by_bytes_{0}, most_on_way_{0}, blocked_calls_{0};
  std::vector<std::uint64_t> dead_, skipped_;  // by node: firings without a kernel; left out
  std::vector<EdgeCount> sent_, received_;     // by send, by receive
  WorkAccount work_;
  std::uint64_t turn_ticks_ = 0;           // ticks of turns since `work_` was settled
  std::int64_t settled_ns_ = steady_ns();  // when `work_` was settled
  // the node whose kernel the turn is in, and its run; publish nothing
  std::atomic<const PlanNode*> running_{nullptr};
  std::atomic<std::uint64_t> running_run_{0};
  std::atomic<std::int32_t> failed_{-1};  // the node that failed a run last; -1: none

  mutable std::mutex said_mutex_;             // guards said_
  std::shared_ptr<const CachedAnswer> said_;  // the last answer
  // nodes by their numbers in the program; empty until the first snapshot
  std::unordered_map<std::int32_t, const PlanNode*> by_source_;
  // by a node that waits at a queue: the nodes that may end the wait
  std::unordered_map<std::int32_t, std::vector<std::int32_t>> may_end_;
};

// A drawn firing begins where the one before it ended: one look at the ticks each. When a turn may
// draw no more, the rest of it fires unobserved, and its long kernels are recorded as usual.
template <class Fire>
void PartitionObserver::observe(const IterationState& iteration, const PlanNode& node, Fire fire) {
  tracer_.observe(iteration, node);
  if (!recorder_.traces() || !recorder_.draws()) {
    looks_closer_ = tracer_.is_active();
    return fire();
  }
  const std::int64_t number = iteration.number;  // the firing may end its iteration
  const std::uint64_t run = iteration.instance->run_state->run->number();
  {
    struct Ends {
      bool& is_drawn;
      ~Ends() { is_drawn = false; }  // also if it throws
    };
    is_drawn_ = true;
    const Ends ends{is_drawn_};
    fire();
  }
  const std::uint64_t now = ticks();
  recorder_.add({RecordedEvent::Kind::firing, false, node.source, last_tick_, now - last_tick_, run,
                 number, 0});
  last_tick_ = now;
}

}  // namespace troupe
