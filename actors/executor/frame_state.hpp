// Frame states: the open executions of loops and calls, and their open iterations.
//
//   FrameState& instance = frames.take(parent, frame_number, now);
//   IterationState& first = frames.take_iteration(instance);
//   ...
//   frames.give_back(first, instance.number); frames.give_back(instance);
//
//   RunState ─ root ─ iteration 0 ─ children[loop] ─► FrameState: a ring of iterations
//                                                       └ iteration n ─ children … (loops, calls)
//
// A frame is the root, the body of a loop or the body of a function; an execution of it is an
// *instance*. An instance owns a ring of iterations: iteration n lies at n modulo the ring's size.
// The root is an instance with one iteration.
//
// Threads: the partition's turn. Ownership: `FramePool` owns all states; a state that is given back
// is used again, so that nothing is allocated after the first run. Invariants: 1. iterations
// `oldest` to `opened - 1` of an instance are open; 2. an instance that is given back refers to no
// run and holds no value.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <troupe/actors/executor/future_tokens.hpp>
#include <troupe/actors/observe/decision.hpp>
#include <troupe/actors/observe/recurrence.hpp>
#include <troupe/actors/plan/plan.hpp>

namespace troupe {

struct FrameState;
struct RunState;

/// The values and counts of one iteration.
struct IterationState {
  FrameState* instance = nullptr;
  std::int64_t number = 0;
  std::uint64_t tag = 0;              // keys random draws
  std::vector<Value> values;          // by slot
  std::vector<std::int32_t> awaited;  // by node: tokens still awaited, and the two flags below
  std::vector<FrameState*> children;  // by child slot
  // nodes that have not fired, instances within, tokens that have not come, buffered tokens and
  // copies of its predicate: the iteration waits for them
  std::int32_t unfired = 0;
  // whether there is a next iteration
  enum class Continuation : std::uint8_t { open, goes_on, ends } continuation = Continuation::open;
  struct Next {  // the token of a NextIteration
    std::int32_t loop;
    bool is_dead;
    Value value;
  };
  std::vector<Next> pending_next;  // tokens that came before the predicate

  static constexpr std::int32_t kDead = 1 << 30;    // a dead token came
  static constexpr std::int32_t kMerged = 1 << 29;  // a Merge has passed its value on
  static constexpr std::int32_t kCount = kMerged - 1;
};

/// One execution of a frame.
struct FrameState {
  const FramePlan* frame = nullptr;
  std::int32_t number = 0;  // the frame's
  RunState* run_state = nullptr;
  IterationState* parent = nullptr;
  const PlanNode* caller = nullptr;   // the Call, in `parent`, of a call that was made here
  std::int32_t depth = 0;             // calls around it, itself included
  std::int64_t call = 0;              // the call's number, if the function is in several partitions
  std::vector<IterationState*> ring;  // its size is a power of two
  std::size_t place_of(std::int64_t n) const {
    return static_cast<std::size_t>(n) & (ring.size() - 1);
  }
  IterationState*& at(std::int64_t n) { return ring[place_of(n)]; }
  const IterationState* at(std::int64_t n) const { return ring[place_of(n)]; }
  /// Drops everything that it holds of a run; its storage stays.
  void reset();
  std::int64_t oldest = 0;
  std::int64_t opened = 0;
  std::uint64_t counted = 0;  // the partition's time up to which its iterations were counted
  std::int32_t enters_pending = 0;
  std::int32_t invariants_pending = 0;
  bool has_dead_invariant = false;
  bool is_advancing = false;          // its done iterations are being given back
  bool must_open = false;             // iteration `opened` waits for the iteration window
  std::vector<std::int64_t> granted;  // by edge out: the last iteration that may be sent
  struct OnWay {
    std::int32_t send;
    std::int64_t number;
    std::uint64_t bytes;
  };
  // large tokens in flight: sent, and in an iteration that the receiver has not ended
  std::vector<OnWay> on_way;
  bool has_large = false;  // a large token has come over a cut edge: its sender counts on grants
  // Tokens over cut edges may come for more iterations than can be open: iteration n lies at n
  // modulo `known_places`, another power of two.
  std::vector<char> received;  // by iteration, then by `Receive::place`
  FutureTokens future;         // for iterations that are not open yet
  std::size_t known_places() const { return std::bit_ceil(static_cast<std::size_t>(frame->known)); }
  std::size_t known_place(std::int64_t n) const {
    return static_cast<std::size_t>(n) & (known_places() - 1);
  }
  std::size_t received_at(std::int64_t n, const PartitionPlan::Receive& r) const {
    return known_place(n) * static_cast<std::size_t>(frame->receives) +
           static_cast<std::size_t>(r.place);
  }
  char& has_received(std::int64_t n, const PartitionPlan::Receive& r) {
    return received[received_at(n, r)];
  }
  bool has_received(std::int64_t n, const PartitionPlan::Receive& r) const {
    return received[received_at(n, r)] != 0;
  }
  std::vector<char> exited;  // by exit: a live token left
  std::vector<Value> invariants;
  std::vector<char> invariant_came;
  std::vector<IterationState::Next> waiting;  // for iteration `opened`
  std::uint64_t execution = 0;                // unique in this partition
  // by deciding node, for a while after a snapshot; empty: no comparison was seen
  std::vector<Comparison> compared;
  Recurrence recurrence;  // tracks the variables that the predicate depends on

  bool is_in_loop() const { return frame->depth > 0 && !frame->function; }
  bool broadcasts_predicate() const { return !frame->told.empty(); }
};

/// Copies what a node's inputs take from constants and invariants, for which it awaits no token.
[[gnu::always_inline]] inline void load_bound_inputs(const PartitionPlan& plan,
                                                     IterationState& iteration,
                                                     const PlanNode& node) {
  const Held* held = plan.held.data() + node.first_held;
  for (const Held* last = held + node.held; held != last; ++held)
    iteration.values[static_cast<std::size_t>(held->slot)].share(
        held->constant >= 0
            ? plan.constants[static_cast<std::size_t>(held->constant)]
            : iteration.instance->invariants[static_cast<std::size_t>(held->invariant)]);
}

inline void empty_inputs(IterationState& iteration, const PlanNode& node) {
  Value* input = iteration.values.data() + node.first_input;
  for (Value* const last = input + node.inputs; input != last; ++input) input->reset();
}

/// Returns the iterations around a firing, outermost first: `iteration 2 of loop 'a', iteration 0
/// of loop 'b'`. Empty outside of loops. If calls are deeply nested, it names the innermost.
std::string tag_of(const IterationState& iteration);
/// Returns the number that stands for the iteration in a token's path.
std::int64_t number_in_path(const IterationState& iteration);
Path path_to(const IterationState& iteration);
/// Orders iterations as they would run one after another. Negative: a is first; 0: no order.
int compare_order(const IterationState& a, const IterationState& b);
/// True if no open iteration of its loop, or of a loop around it, is older.
bool is_oldest(const IterationState& iteration);

/// The states of one partition.
class FramePool {
 public:
  explicit FramePool(const PartitionPlan& plan)
      : mine_(plan), spare_iterations_(plan.frames.size()), spare_instances_(plan.frames.size()) {}

  /// Returns the instance outside of all loops for a run; `root` is the one of the run before.
  FrameState& take_root(FrameState* root, RunState& run);
  /// Returns an instance of a frame in that iteration, with no iteration open.
  FrameState& take(IterationState& parent, std::int32_t number, std::uint64_t now);
  /// Opens the next iteration; its counts are not set.
  IterationState& take_iteration(FrameState& instance) {
    const FramePlan& frame = *instance.frame;
    auto& spare = spare_iterations_[static_cast<std::size_t>(instance.number)];
    if (spare.empty()) [[unlikely]]
      add_iteration(instance);
    IterationState& it = *spare.back();
    spare.pop_back();
    it.instance = &instance;
    it.number = instance.opened++;
    const std::uint64_t key =
        instance.caller ? mine_.calls[static_cast<std::size_t>(instance.caller->number)].key
                        : frame.key;
    it.tag = instance.parent
                 ? fold_tag(instance.parent->tag, key, static_cast<std::uint64_t>(it.number))
                 : 0;
    it.continuation = IterationState::Continuation::open;
    if (!frame.has_predicate) it.pending_next.clear();  // left by a last iteration, undecided
    std::fill(it.children.begin(), it.children.end(), nullptr);
    instance.at(it.number) = &it;
    return it;
  }
  void give_back(FrameState& instance) {
    instance.reset();
    spare_instances_[static_cast<std::size_t>(instance.number)].push_back(&instance);
  }
  void give_back(IterationState& iteration, std::int32_t frame) {
    spare_iterations_[static_cast<std::size_t>(frame)].push_back(&iteration);
  }

  /// Stands among an iteration's children for an instance that has ended.
  FrameState* ended() { return &ended_; }
  const FrameState* ended() const { return &ended_; }
  /// All instances, also those that are not in use: `run_state` is null in these.
  const std::vector<std::unique_ptr<FrameState>>& instances() const { return instances_; }

 private:
  void add_iteration(const FrameState& instance);

  const PartitionPlan& mine_;
  std::vector<std::unique_ptr<IterationState>> iterations_;
  std::vector<std::unique_ptr<FrameState>> instances_;
  std::vector<std::vector<IterationState*>> spare_iterations_;  // by frame
  std::vector<std::vector<FrameState*>> spare_instances_;
  FrameState ended_;
  std::uint64_t executions_ = 0;  // loops and calls that have begun
};

}  // namespace troupe
