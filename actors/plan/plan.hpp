// Plans: what never changes between runs. A plan is a lowered program cut into partitions, one a
// device; each partition's nodes stand by frame, so that delivering a token is two array indexings.
//
// What fires: kernels, Switch, Merge of a conditional, Identity, ControlTrigger, Call, Return. What
// does not, and is resolved into targets when the plan is made: Enter, Exit, NextIteration, the
// Merge of a loop, LoopCond, an Identity without controls; constants, which their users hold; a
// function's Arguments.
//
// Matching: in an iteration's record every input of every node has a slot for its value and every
// node a count of tokens still awaited; both are found by index. The plan holds what records start
// from.
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
}

namespace troupe::detail {

/// The kinds of places that a token goes to. The last six are not nodes.
enum class Destination : std::int32_t {
  input,     // of a node
  control,   // a control edge of a node
  merge,     // an input of a Merge
  fetch,     // index: of the fetch
  send,      // index: into PartitionPlan::sends
  enter,     // index: into PartitionPlan::enters
  exit,      // index: into PartitionPlan::exits
  next,      // index: into PartitionPlan::loops
  predicate  // decides whether there is a next iteration
};

/// Where a token goes, seen from the iteration it is made in. Made by the functions named after its
/// destination; `is_input` is one test, because most tokens go to an input.
class Target {
 public:
  Target() = default;
  /// `node`: of the same frame; `slot`: in its iterations.
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
  std::int32_t node() const { return node_; }                  // of a node
  std::int32_t slot() const { return slot_; }                  // of an input
  std::int32_t merge_input() const { return kMerge - slot_; }  // of a Merge
  std::int32_t index() const { return slot_; }                 // of all others
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

/// The iterations around a token, outermost first. In a function's body the first number is its
/// call's, which the partition that calls has given it, and what is around the call is left out.
struct Path {
  // of loops that span devices: every token carries its path
  static constexpr std::int32_t kMaxDepth = 12;
  std::int32_t depth = 0;
  std::int64_t number[kMaxDepth] = {};
};

/// A range of `PartitionPlan::targets`.
struct TargetRange {
  std::int32_t first = 0;
  std::int32_t last = 0;
};

/// What an input that awaits no token is copied from when its node fires.
struct Held {
  std::int32_t slot = 0;
  std::int32_t constant = -1;   // into PartitionPlan::constants
  std::int32_t invariant = -1;  // of the frame's instance
};

struct PlanNode {
  enum class Kind : std::uint8_t { kernel, identity, switch_, merge, trigger, call, return_ };
  Kernel* kernel = nullptr;
  // what to run instead where all inputs are single elements
  const ScalarProgram* scalars = nullptr;
  ResidentKernel* resident = nullptr;  // `kernel`, if it is a loop that is advanced in slices
  Kind kind = Kind::kernel;
  std::int32_t first_input = 0;  // slot
  std::int32_t inputs = 0;
  std::int32_t outputs = 0;
  std::int32_t first_output = 0;  // into `output_targets`; controls follow the outputs
  std::int32_t awaited = 0;       // tokens, control ones included
  Target only;                    // where its one output goes, if that is all that leaves it
  bool has_only = false;
  bool makes_list = false;  // some output is one
  // Which of several ready nodes fires. On a stream device, whose work is done in one order anyway,
  // what makes and extends lists goes before all others, for from there values can be swapped out;
  // what takes them out again goes after all others, for from then on they cannot.
  enum class Rank : std::uint8_t { usual, first, last } rank = Rank::usual;
  std::int32_t first_held = 0;
  std::int32_t held = 0;
  std::int32_t index = 0;   // among the nodes of the partition
  std::int32_t place = 0;   // among those of its frame
  std::int32_t source = 0;  // node of the program, for errors
  std::int32_t number = 0;  // of a call: into `calls`; of a Return: which result
};

/// A loop, a function's body or, number 0, what is outside of all.
struct FramePlan {
  std::string name;
  std::uint64_t key = 0;
  std::int32_t parent = -1;
  std::int32_t depth = 0;
  std::int32_t child_slot = 0;  // in the parent's records
  std::int32_t children = 0;
  std::int32_t window = 1;  // iterations that may be open at once
  std::int32_t enters = 0;  // tokens that come in, once an instance
  std::int32_t invariants = 0;
  std::vector<std::int32_t> exits;  // into PartitionPlan::exits
  std::vector<PlanNode> nodes;
  // of an iteration that starts before all invariants have come
  std::vector<std::int32_t> awaited;
  std::vector<std::int32_t> steady;  // of one that starts after
  std::vector<std::int32_t> roots;   // nodes for which `steady` is 0
  std::vector<TargetRange> invariant_targets;
  struct Forward {
    std::int32_t invariant;
    Target target;
  };
  std::vector<Forward> forwards;  // targets of invariants that `steady` does not count
  std::int32_t slots = 0;
  std::int32_t receives = 0;  // tokens from other partitions, once an iteration
  // iterations for which such tokens may come before they are done
  std::int32_t known = 1;
  std::vector<std::int32_t> edges_out;  // sends from here or from frames within
  std::vector<std::int32_t> edges_in;   // receives of here or of frames within
  struct Sender {
    std::int32_t receive;     // of these the first of each partition
    std::int32_t window = 1;  // iterations that it is granted
    // after so many it is told: a power of two, a quarter of them at most
    std::int32_t every = 1;
  };
  std::vector<Sender> senders;
  std::vector<std::int64_t> granted;  // at first, by edge out: the last iteration that may be sent
  const FunctionDef* function = nullptr;
  std::vector<TargetRange> arguments;  // of a function: by parameter, where it is called
  // of a function: the partition of its calls, its Arguments and its Returns
  std::int32_t home = -1;
  std::vector<std::int32_t> begins;  // there: a send to every other partition that has part of it
  // in the others: the send that says that this part of a call has ended
  std::int32_t tells = -1;
  // a LoopCond, here or in another partition, decides how long it goes on
  bool has_predicate = false;
  // the sends by which others are told, where a node here decides
  std::vector<std::int32_t> told;
  /// Of an iteration: what must happen until it has drained.
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
    std::int32_t invariant = -1;  // which one; -1: a loop variable
    TargetRange targets;          // in iteration 0
    TargetRange index_targets;    // of who asks the Merge which input came
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
    std::int32_t frame = 0;  // of the function
    std::uint64_t key = 0;   // for random draws in it
  };
  struct Send {
    std::int32_t partition = 0;
    std::int32_t receive = 0;  // as that partition numbers them where it is
    std::int32_t frame = 0;
    std::int32_t source = 0;  // node of the program
    // in edges_out of the frames around it, outermost first
    std::int32_t place[Path::kMaxDepth] = {};
    std::int32_t function = -1;  // the frame of the function that it is in
    // of `source`; -1: a control edge, or, outside of loops in a part of a plan, not known
    std::int32_t output = -1;
    std::int32_t window = 1;  // iterations of `frame` that its receiver grants
  };
  /// Most say a value, or that somebody has fired. For functions in several partitions: a part of a
  /// call begins, which takes the tag of its draws; a part has ended; a partition has no more calls
  /// to make (Note [Calls] in executor/PROTOCOL.md).
  enum class Says : std::uint8_t { value, begins, ended, over };
  struct Receive {
    std::int32_t frame = 0;
    TargetRange targets;
    std::int32_t source = 0;     // node of the program
    std::int32_t output = 0;     // of it; -1: a control edge, whose tokens have no value
    std::int32_t partition = 0;  // who sends, and by which send, as that numbers them
    std::int32_t send = 0;
    std::int32_t place = 0;  // among the receives of its frame
    bool decides = false;    // it is the predicate of its frame, whoever else may use it
    Says says = Says::value;
    std::int32_t function = -1;  // the frame of the function that it is in; of `over` 0
    std::int32_t window = 1;     // iterations of `frame` that are granted
  };

  std::string name;          // of its device, in full where there is a cluster
  std::int32_t number = 0;   // in the whole plan
  std::int32_t node = 0;     // into Plan::nodes
  Device* device = nullptr;  // null: on another node, which has the kernels and constants too
  std::vector<FramePlan> frames;
  // output o of a node: targets [x, y), which stand at first_output + 2 o; controls after the last
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
  std::vector<std::int32_t> overs;  // sends: it has no more calls to make
  std::int32_t overs_in = 0;        // receives that say the same of others
  std::int32_t nodes = 0;
  std::int32_t max_outputs = 0;
  std::vector<std::unique_ptr<Kernel>> kernels;
};

struct Plan {
  PlanName name;
  Program program;
  std::shared_ptr<const void> keep;  // strings that the program's sites refer to
  std::vector<PartitionPlan> partitions;
  std::vector<std::int32_t> partition_of;  // each node of the program
  // of the cluster that take part, by name, in order of their first partition
  std::vector<std::string> nodes;
  std::vector<std::vector<std::int32_t>> partitions_on;  // by node
  std::int32_t here = 0;                                 // which of them this is; -1: none
  // Of a node's part of a plan (plan_part.hpp): the number in the whole program of each node of
  // `program`, ascending. Empty: it is the whole.
  std::vector<std::int32_t> numbers;
  bool is_part() const { return !numbers.empty(); }
  /// What nodes say to each other of actors and partitions goes by their numbers in the whole; all
  /// else by where they stand here.
  std::int32_t number_of(std::int32_t node) const {
    return is_part() && node >= 0 ? numbers[static_cast<std::size_t>(node)] : node;
  }
  /// -1: it is not here.
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
  QueueUses queues;  // of the whole program, also in a part of it
  // PlanPart::waits; of a part only
  std::unordered_map<std::int32_t, std::vector<std::int32_t>> ends_queue_waits;
  std::int32_t call_depth = 0;  // calls inside each other, at most
  // of a function in several partitions, equally deep and under way at once, at most
  static constexpr std::int32_t kCalls = 32;
  std::uint64_t edge_bytes = 64 << 20;  // EdgeOptions::bytes
  bool check_finite = false;            // some of its nodes are watched
};

/// Finds devices by name; throws not_found.
class DeviceFinder {
 public:
  /// Null for a device of another node.
  virtual Device* find(const std::string& name) = 0;
  /// This node's name; empty where there is no cluster.
  virtual std::string node() const { return {}; }

 protected:
  ~DeviceFinder() = default;
};

struct Placed;

/// Cuts a placed program and makes the kernels of its partitions on this node. From one placed
/// program, or its own part of it (plan_part.hpp), every node makes the same of a partition, but
/// for what only the node that has it needs: device, kernels, constants. Throws what making a
/// kernel throws, naming node and line, and invalid_argument where inputs of one node come from
/// different frames.
Plan make_plan(Placed placed, DeviceFinder& devices, StateStore& states);
/// Places every node first (its constraint, its state's device, else the default; primitives with
/// what they serve).
Plan make_plan(Program program, DeviceFinder& devices, const std::string& default_device,
               StateStore& states);
/// For each of a plan's nodes a number that its part of the plan has too, if it was cut in the same
/// way. In a part those of other nodes mean nothing.
std::vector<std::uint64_t> fingerprints(const Plan& plan);

}  // namespace troupe::detail
