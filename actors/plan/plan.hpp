// Plan: the state that never changes between runs. A plan is a lowered program cut into partitions,
// one a device. Each partition stores its nodes by frame, so delivering a token is two array
// indexings.
//
// Nodes that fire: kernels, Switch, Merge of a conditional, Identity, ControlTrigger, Call, Return.
// Nodes that `make_plan` resolves into targets and that never fire: Enter, Exit, NextIteration, the
// Merge of a loop, LoopCond, an Identity without controls, a function's Arguments, and constants,
// which are bound to the inputs that use them.
//
// Matching: in an iteration's state every input of every node has a slot for its value, and every
// node has a count of awaited tokens. Both are found by index. The plan holds the initial counts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <troupe/actors/observe/snapshot.hpp>
#include <troupe/devices/device/kernel.hpp>
#include <troupe/ops/graph/program.hpp>

namespace troupe {
class ResidentKernel;
namespace mesh::detail {
class Exchange;
}
}  // namespace troupe

namespace troupe::detail {

/// The kinds of places that a token goes to. The last six are not nodes.
enum class Destination : std::int32_t {
  input,     // a node's input
  control,   // a control edge of a node
  merge,     // an input of a Merge
  fetch,     // index: the fetch's
  send,      // index: into PartitionPlan::sends
  enter,     // index: into PartitionPlan::enters
  exit,      // index: into PartitionPlan::exits
  next,      // index: into PartitionPlan::loops
  predicate  // decides whether there is a next iteration
};

/// The destination of a token, seen from the iteration that makes it. The static functions are
/// named after destinations. `is_input` is one test, because most tokens go to an input.
class Target {
 public:
  Target() = default;
  /// `node`: index in the same frame; `slot`: index in its iterations.
  static Target input(std::int32_t node, std::int32_t slot) { return {node, slot}; }
  static Target control(std::int32_t node) { return {node, kControl}; }
  static Target merge(std::int32_t node, std::int32_t input) { return {node, kMerge - input}; }
  static Target fetch(std::int32_t index) { return {Destination::fetch, index}; }
  static Target send(std::int32_t index) { return {Destination::send, index}; }
  static Target enter(std::int32_t index) { return {Destination::enter, index}; }
  static Target exit(std::int32_t index) { return {Destination::exit, index}; }
  static Target next(std::int32_t index) { return {Destination::next, index}; }
  static Target predicate() { return {Destination::predicate, 0}; }

  bool is_input() const { return (node_ | slot_) >= 0; }
  /// True for an input, a control edge and a Merge.
  bool is_node() const { return node_ >= 0; }
  bool is(Destination destination) const { return this->destination() == destination; }
  Destination destination() const {
    if (node_ < 0) return static_cast<Destination>(kFirst - node_);
    return slot_ >= 0          ? Destination::input
           : slot_ == kControl ? Destination::control
                               : Destination::merge;
  }
  // Each is valid for some destinations only: nodes; inputs; Merges; targets that are not nodes.
  std::int32_t node() const { return node_; }
  std::int32_t slot() const { return slot_; }
  std::int32_t merge_input() const { return kMerge - slot_; }
  std::int32_t index() const { return slot_; }
  friend bool operator==(const Target&, const Target&) = default;

 private:
  static constexpr std::int32_t kControl = -1;
  static constexpr std::int32_t kMerge = -2;  // and below: input -2 - slot
  static constexpr std::int32_t kFirst = static_cast<std::int32_t>(Destination::fetch) - 1;

  Target(std::int32_t node, std::int32_t slot) : node_(node), slot_(slot) {}
  Target(Destination destination, std::int32_t index)
      : node_(kFirst - static_cast<std::int32_t>(destination)), slot_(index) {}

  std::int32_t node_ = 0;  // negative: no node
  std::int32_t slot_ = 0;
};

/// The iterations around a token, outermost first. In a function's body the first number is the
/// call's, which the calling partition has assigned. Iterations around the call are left out.
struct Path {
  // limit for nested loops that span devices, because every token carries its path
  static constexpr std::int32_t kMaxDepth = 12;
  std::int32_t depth = 0;
  std::int64_t number[kMaxDepth] = {};
};

/// A range of `PartitionPlan::targets`.
struct TargetRange {
  std::int32_t first = 0;
  std::int32_t last = 0;
};

/// A bound input: it awaits no token, and is copied from a constant or an invariant when its node
/// fires.
struct Held {
  std::int32_t slot = 0;
  std::int32_t constant = -1;   // into PartitionPlan::constants
  std::int32_t invariant = -1;  // into the invariants of the frame's instance
};

struct PlanNode {
  enum class Kind : std::uint8_t { kernel, identity, switch_, merge, trigger, call, return_ };
  Kernel* kernel = nullptr;
  // runs instead of `kernel` if all inputs are single elements
  const ScalarProgram* scalars = nullptr;
  ResidentKernel* resident = nullptr;  // `kernel`, if it is a loop that is advanced in slices
  Kind kind = Kind::kernel;
  std::int32_t first_input = 0;  // slot
  std::int32_t inputs = 0;
  std::int32_t outputs = 0;
  std::int32_t first_output = 0;  // into `output_targets`; controls follow the outputs
  std::int32_t awaited = 0;       // tokens, control ones included
  Target only;                    // target of its only output, if nothing else leaves the node
  bool has_only = false;
  bool makes_list = false;  // some output is a list
  // The order in which ready nodes fire. A stream device runs its work in one order anyway. There,
  // ops that make and extend lists go first, because values in a list can be swapped out. Ops that
  // take values out of lists go last, because such values cannot be swapped out.
  enum class Rank : std::uint8_t { usual, first, last } rank = Rank::usual;
  std::int32_t first_held = 0;
  std::int32_t held = 0;
  std::int32_t index = 0;   // in the partition
  std::int32_t place = 0;   // in the frame
  std::int32_t source = 0;  // node of the program, for errors
  std::int32_t number = 0;  // a Call: into `calls`; a Return: index of the result
};

/// A loop, a function's body or, number 0, the nodes outside of all of these.
struct FramePlan {
  std::string name;
  std::uint64_t key = 0;
  std::int32_t parent = -1;
  std::int32_t depth = 0;
  std::int32_t child_slot = 0;  // in the parent's iteration states
  std::int32_t children = 0;
  std::int32_t window = 1;  // iterations that may be open at once
  std::int32_t enters = 0;  // tokens that come in, once an instance
  std::int32_t invariants = 0;
  std::vector<std::int32_t> exits;  // into PartitionPlan::exits
  std::vector<PlanNode> nodes;
  // counts by node for an iteration that starts before all invariants have arrived
  std::vector<std::int32_t> awaited;
  std::vector<std::int32_t> steady;  // counts for an iteration that starts after that
  std::vector<std::int32_t> roots;   // nodes for which `steady` is 0
  std::vector<TargetRange> invariant_targets;
  struct Forward {
    std::int32_t invariant;
    Target target;
  };
  std::vector<Forward> forwards;  // targets of invariants that `steady` does not count
  std::int32_t slots = 0;
  std::int32_t receives = 0;  // tokens from other partitions, once an iteration
  // iterations, from the oldest on, for which tokens from other partitions may arrive
  std::int32_t known = 1;
  std::vector<std::int32_t> edges_out;  // sends of this frame and of frames within
  std::vector<std::int32_t> edges_in;   // receives of this frame and of frames within
  struct Sender {
    std::int32_t receive;     // the first in `edges_in` from one partition
    std::int32_t window = 1;  // iterations that it is granted
    // iterations between two grants: a power of two, at most a quarter of `window`
    std::int32_t every = 1;
  };
  std::vector<Sender> senders;
  std::vector<std::int64_t> granted;  // at first, by edge out: the last iteration that may be sent
  const FunctionDef* function = nullptr;
  std::vector<TargetRange> arguments;  // a function's, by parameter; only in the home
  // a function's home: the partition of its Calls, Arguments and Returns
  std::int32_t home = -1;
  // in the home: a send to every other partition that has a part of the function
  std::vector<std::int32_t> begins;
  // in the other partitions: the send that reports the end of this part of a call
  std::int32_t tells = -1;
  // a LoopCond, here or in another partition, decides whether the loop goes on
  bool has_predicate = false;
  // if a node here decides: the sends that broadcast the predicate
  std::vector<std::int32_t> told;
  /// Returns the number of events after which an iteration has drained.
  std::int32_t unfired() const {
    return static_cast<std::int32_t>(nodes.size()) + children + receives;
  }
};

struct PartitionPlan {
  struct Feed {
    std::int32_t index;  // among the caller's feeds
    TargetRange targets;
  };
  struct Enter {
    std::int32_t frame = 0;
    std::int32_t invariant = -1;  // its index; -1: a loop variable
    TargetRange targets;          // in iteration 0
    TargetRange index_targets;    // users of the Merge's second output, the index of its input
  };
  struct Exit {
    TargetRange targets;       // in the parent's iteration
    std::int32_t ordinal = 0;  // among the frame's exits
    std::int32_t source = 0;   // node of the program
  };
  struct Loop {           // a NextIteration
    TargetRange targets;  // in the next iteration
    TargetRange index_targets;
    std::int32_t source = 0;  // node of the program
    std::int32_t frame = 0;
  };
  struct Call {
    std::int32_t frame = 0;  // the function's
    std::uint64_t key = 0;   // keys random draws in the call
  };
  struct Send {
    std::int32_t partition = 0;
    std::int32_t receive = 0;  // index at the receiving partition, on its node
    std::int32_t frame = 0;
    std::int32_t source = 0;  // node of the program
    // indices into edges_out of the frames around it, outermost first
    std::int32_t place[Path::kMaxDepth] = {};
    std::int32_t function = -1;  // the frame of the function that it is in
    // index of the output of `source`; -1: a control edge, or not known. It may be unknown outside
    // of loops in a part of a plan.
    std::int32_t output = -1;
    std::int32_t window = 1;  // iterations of `frame` that its receiver grants
  };
  /// The meaning of an edge's tokens. `value`: a value, or the firing of a node. The others are for
  /// functions in several partitions: a part of a call begins, with the tag of its draws; a part
  /// has ended; a partition has no more calls to make (Note [Calls] in executor/PROTOCOL.md).
  enum class Says : std::uint8_t { value, begins, ended, over };
  struct Receive {
    std::int32_t frame = 0;
    TargetRange targets;
    std::int32_t source = 0;     // node of the program
    std::int32_t output = 0;     // index; -1: a control edge, whose tokens have no value
    std::int32_t partition = 0;  // the sender
    std::int32_t send = 0;       // index at the sender
    std::int32_t place = 0;      // among the receives of its frame
    bool decides = false;        // true for the predicate of its frame, even if nodes use it too
    Says says = Says::value;
    std::int32_t function = -1;  // the frame of the function that it is in; 0 for `over`
    std::int32_t window = 1;     // iterations of `frame` that are granted
  };

  std::string name;          // the device's name, in full in a cluster
  std::int32_t number = 0;   // in the whole plan
  std::int32_t node = 0;     // into Plan::nodes
  Device* device = nullptr;  // null: on another node, which has the kernels and constants too
  std::vector<FramePlan> frames;
  // output o of a node has the targets [x, y); x and y stand at first_output + 2 o. Controls follow
  // the last output.
  std::vector<std::int32_t> output_targets;
  std::vector<Target> targets;
  std::vector<Held> held;
  std::vector<Value> constants;
  std::vector<Enter> enters;
  std::vector<Exit> exits;
  std::vector<Loop> loops;
  std::vector<Call> calls;
  std::vector<Send> sends;
  std::vector<Receive> receives;
  std::vector<Feed> feeds;
  bool has_cut_function = false;
  std::vector<std::int32_t> overs;  // sends of `over`
  std::int32_t overs_in = 0;        // number of receives of `over`
  std::int32_t nodes = 0;
  std::int32_t max_outputs = 0;
  std::vector<std::unique_ptr<Kernel>> kernels;
};

struct Plan {
  PlanName name;
  Program program;
  std::shared_ptr<const void> keep;  // strings that the program's sites refer to
  // If this plan has instances (instances.hpp): the plan that they are instances of, whose kernels
  // they share, and where they meet. Null: it has none.
  std::shared_ptr<const Plan> compiled;
  std::shared_ptr<mesh::detail::Exchange> exchange;
  std::vector<PartitionPlan> partitions;
  std::vector<std::int32_t> partition_of;  // by node of the program
  // names of the cluster's nodes that take part, in order of their first partition
  std::vector<std::string> nodes;
  std::vector<std::vector<std::int32_t>> partitions_on;  // by node
  std::int32_t here = 0;                                 // index of this node; -1: none
  // If this is a node's part of a plan (plan_part.hpp): the number in the whole program of each
  // node of `program`, ascending. Empty: the plan is whole.
  std::vector<std::int32_t> numbers;
  bool is_part() const { return !numbers.empty(); }
  /// Returns the number in the whole program. Messages between nodes name actors and partitions by
  /// their numbers in the whole; everything else uses indices into this plan.
  std::int32_t number_of(std::int32_t node) const {
    return is_part() && node >= 0 ? numbers[static_cast<std::size_t>(node)] : node;
  }
  /// Both return -1 if the number is not in this plan.
  std::int32_t node_of_number(std::int32_t number) const;
  std::int32_t partition_of_number(std::int32_t number) const;
  bool is_shared() const { return nodes.size() > 1 || here < 0; }
  bool is_here(std::size_t partition) const { return partitions[partition].node == here; }
  bool is_on(std::int32_t partition, std::int32_t node) const {
    return partitions[static_cast<std::size_t>(partition)].node == node;
  }
  std::vector<ValueSpec> feeds;
  std::vector<std::string> feed_names;
  std::int32_t fetches = 0;
  QueueUses queues;  // the whole program's, also in a part
  // PlanPart::waits; empty unless this is a part
  std::unordered_map<std::int32_t, std::vector<std::int32_t>> ends_queue_waits;
  std::int32_t call_depth = 0;  // limit of nested calls
  // limit of equally deep calls under way of a function in several partitions
  static constexpr std::int32_t kCalls = 32;
  std::uint64_t edge_bytes = 64 << 20;  // EdgeOptions::bytes
  bool check_finite = false;            // some nodes are watched for NaN and infinity
};

/// Finds devices by name; throws not_found.
class DeviceFinder {
 public:
  /// Returns null for a device of another node.
  virtual Device* find(const std::string& name) = 0;
  /// Returns this node's name; empty without a cluster.
  virtual std::string node() const { return {}; }

 protected:
  ~DeviceFinder() = default;
};

struct Placed;

/// Cuts a placed program and makes the kernels of its partitions on this node. All nodes make equal
/// partitions from one placed program, or from their parts of it (plan_part.hpp). Device, kernels
/// and constants of a partition exist only on its node. Throws the errors of making a kernel,
/// naming node and line. Throws invalid_argument if inputs of one node come from different frames.
Plan make_plan(Placed placed, DeviceFinder& devices, StateStore& states);
/// Places every node first: by its constraint, else on its state's device, else on the default.
/// Primitives are placed with the nodes that they serve.
Plan make_plan(Program program, DeviceFinder& devices, const std::string& default_device,
               StateStore& states);
/// Returns one number for each of the plan's nodes. A node's part of the plan has an equal number
/// if it was cut in the same way. In a part the numbers of other nodes are meaningless.
std::vector<std::uint64_t> fingerprints(const Plan& plan);

}  // namespace troupe::detail
