// The messages between nodes, as plain structs. The fields of each, named once in messages.cpp, are
// written and read. cluster/runs/RUNS.md and the headers in cluster/node have their order.
//
// To add a message: a struct with `kLane` at the end of NodeMessage, a line in `fields`, and an
// overload in `NodeCore::dispatch`.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <troupe/actors/executor/loop_report.hpp>
#include <troupe/actors/executor/remote_plan.hpp>
#include <troupe/cluster/membership/membership.hpp>
#include <troupe/cluster/protocol/archive.hpp>
#include <troupe/cluster/protocol/node_report.hpp>
#include <troupe/cluster/protocol/run_tokens.hpp>
#include <troupe/ops/graph/state.hpp>

namespace troupe {

/// A node as others know it.
struct NodeId {
  std::string name;
  std::uint64_t incarnation = 0;
  std::string address;
};

/// A message from the sender's membership to the receiver's.
struct Gossip {
  static constexpr Lane kLane = Lane::control;
  Member from;
  MembershipMessage message;
};
/// The driver of a training, in an epoch that is later than each driver's before. A node that has
/// accepted a later one refuses this one (cluster/checkpoint/checkpoint_store.hpp).
struct Fence {
  std::string training;  // empty: of none
  std::uint64_t epoch = 0;
  std::string driver;
};

/// Owner to participant: a plan to make.
struct MakePlan {
  static constexpr Lane kLane = Lane::data;
  std::uint64_t request = 0;
  std::uint64_t plan = 0;            // among the owner's
  std::vector<NodeId> participants;  // the owner included
  std::int32_t call_depth = 0;
  std::uint64_t fingerprint = 0;  // fingerprint of the participant's part
  std::string container = {};     // the container of its states; empty: the owner's own
  Fence fence = {};               // set if it is a training's step
  Message program = {};  // the participant's part of the placed program (program_codec.hpp)
};
/// Owner to participant: no run of this plan will begin any more.
struct DropPlan {
  static constexpr Lane kLane = Lane::data;
  std::uint64_t plan = 0;
};
/// Owner to participant. `run` goes up.
struct BeginRun {
  static constexpr Lane kLane = Lane::data;
  std::uint64_t run = 0;  // among those over several nodes (RunKey)
  std::uint64_t id = 0;   // among all of the owner's runs: its name on every node
  std::uint64_t plan = 0;
  std::uint64_t step = 0;
  std::uint64_t seed = 0;
  std::vector<std::pair<std::int32_t, Tensor>> feeds;  // feeds of the participant's partitions
};
/// Participant to participant: values of the sender's devices of a mesh, for the receiver's
/// (actors/plan/exchange.hpp).
struct MeshValues {
  static constexpr Lane kLane = Lane::data;
  RunKey run;
  MeetingPlace place;
  std::vector<Tensor> values;
};
/// Participant to owner.
struct RunFailed {
  static constexpr Lane kLane = Lane::control;
  std::uint64_t run = 0;
  Status status;
};
/// Owner to participants: the run has failed. With why, because each of them keeps that, also one
/// that has done its part before.
struct AbandonRun {
  static constexpr Lane kLane = Lane::control;
  std::uint64_t run = 0;
  std::uint64_t id = 0;    // as in BeginRun
  std::uint64_t plan = 0;  // likewise
  Status status;
};
/// Participant to owner, its last message of a run: behind its tokens.
struct LeftRun {
  static constexpr Lane kLane = Lane::data;
  std::uint64_t run = 0;
  Status status;
  std::vector<std::pair<std::int32_t, Tensor>> fetches;
  RunTotals done = {};  // by all of its partitions
};
struct GetVariable {
  static constexpr Lane kLane = Lane::data;
  std::uint64_t request = 0;
  StateSpec variable;
  std::string container = {};
};
struct SetVariable {
  static constexpr Lane kLane = Lane::data;
  std::uint64_t request = 0;
  StateSpec variable;
  Tensor value;
  std::string container = {};
};
/// Drops the states of a container; empty: those of the sender's own programs. The answer's
/// `states` are how many, or that the receiver names the container itself, and so keeps its own.
struct ClearContainer {
  static constexpr Lane kLane = Lane::data;
  static constexpr std::uint64_t kKept = UINT64_MAX;
  std::uint64_t request = 0;
  std::string container = {};
};
/// Owner to participant: asks for the loop reports of a plan's partitions there.
struct GetLoops {
  static constexpr Lane kLane = Lane::data;
  std::uint64_t request = 0;
  std::uint64_t plan = 0;
};
/// To a request.
struct Answer {
  static constexpr Lane kLane = Lane::data;
  std::uint64_t request = 0;
  Status status;
  Tensor value;
  std::vector<LoopReport> loops = {};
  std::vector<NodeCost> costs = {};
  std::uint64_t ns = 0;  // duration of a probe
  // answer to a plan or a variable: the life of the owner's states there that it belongs to; to
  // ClearContainer: the number of dropped states
  std::uint64_t states = 0;
};

/// Owner to participant: what kernels of a plan took there.
struct GetCosts {
  static constexpr Lane kLane = Lane::data;
  std::uint64_t request = 0;
  std::uint64_t plan = 0;
};
/// Is answered at once: to see how long a message with so much in it takes.
struct Probe {
  static constexpr Lane kLane = Lane::data;
  std::uint64_t request = 0;
  Tensor load;
};
/// Asks a node to send such a probe to another, and how long it took.
struct ProbeFor {
  static constexpr Lane kLane = Lane::data;
  std::uint64_t request = 0;
  std::string node;
  std::uint64_t bytes = 0;
};
/// Asks another node for its state.
struct InspectNode {
  static constexpr Lane kLane = Lane::control;
  std::uint64_t request = 0;
  NodeQuestion question;
};
/// The answer to it.
struct Inspected {
  static constexpr Lane kLane = Lane::data;
  std::uint64_t request = 0;
  Status status;
  NodeReport report;
};

/// Participant to owner: it has lost another participant, or the states were cleared, so that no
/// run of this plan can begin there any more.
struct PlanBroken {
  static constexpr Lane kLane = Lane::control;
  std::uint64_t plan = 0;
};

/// Owner to any, its first message in a session: up to this number its runs have begun, and
/// none of them begins in this session.
struct RunsBegun {
  static constexpr Lane kLane = Lane::data;
  std::uint64_t last = 0;
};

/// An operator's wish, to any node, which passes it on once.
struct OperateNode {
  static constexpr Lane kLane = Lane::data;
  enum class Action : std::uint8_t { cancel, drain };
  std::uint64_t request = 0;
  Action action = Action::cancel;
  std::string node;       // to which it goes
  std::uint64_t run = 0;  // cancel: its number there
  bool is_passed_on = false;
};

/// To a node that computes for eager scopes of the sender (cluster/node/eager_service.hpp): a
/// program. Numbers of programs, values and steps are the sender's.
struct EagerProgram {
  static constexpr Lane kLane = Lane::data;
  std::uint64_t batch = 0;  // as in EagerSteps
  std::uint64_t number = 0;
  std::int32_t call_depth = 0;
  std::string container = {};
  Message program = {};  // as in MakePlan
};
/// One step of a stream. The steps of a stream run in their order.
struct EagerStep {
  enum class Kind : std::uint8_t {
    put,      // the value `of` is `value`
    pack,     // the value `of` is a list of the values `in`; 0: an element that was never written
    unpack,   // the values `out` are the elements of the list `of`; 0: likewise
    call,     // the values `out` are what the program `of` yields of the values `in`
    read,     // asks for the value `of`
    release,  // the value `of` is named no more
    drop,     // the program `of` is named no more
    end       // the stream has no further steps
  };
  Kind kind = Kind::put;
  std::uint64_t number = 0;  // the name of a call or read in results
  std::uint64_t stream = 0;
  std::uint64_t of = 0;
  std::vector<std::uint64_t> in = {}, out = {};
  Tensor value = {};
  ValueSpec list = {};
  // for a call
  std::uint64_t step = 0, seed = 0;
  bool acts = false;     // it has effects: it fails, and not only its results, if an input failed
  bool is_told = false;  // asks for the specs of its results
};
struct EagerSteps {
  static constexpr Lane kLane = Lane::data;
  static constexpr std::size_t kMost = 1024;  // steps
  std::uint64_t batch = 0;                    // acknowledged when all of its steps are done
  std::vector<EagerStep> steps;
};
/// Describes a value to its holder on another node.
struct EagerSpec {
  static constexpr std::int64_t kUnwritten = -1;
  ValueSpec spec;
  std::int64_t length = 0;  // a list's, whose elements follow; kUnwritten: no value
};
struct EagerResult {
  std::uint64_t number = 0;  // the call's or read's
  Status status = {};        // the call's
  std::uint64_t cause = 0;   // the call that failed, which may be an earlier one; 0: none
  Value value = {};          // read
  std::vector<EagerSpec> told = {};
};
/// The answer to EagerSteps: results as they come, and a batch that is done.
struct EagerResults {
  static constexpr Lane kLane = Lane::data;
  std::uint64_t batch = 0;  // 0: none is done
  std::vector<EagerResult> results;
};
/// Driver of a training to a node, about its checkpoints (cluster/node/checkpoint_service.hpp); any
/// node to any, to look. The answer's value has the bytes that are asked for.
struct CheckpointRequest {
  static constexpr Lane kLane = Lane::data;
  enum class Kind : std::uint8_t {
    look,    // which trainings there are
    claim,   // accept this driver
    take,    // keep the values of states, by `names`; `tensors` and `text`: more values
    fetch,   // the values that were taken, as the bytes of a safetensors file
    put,     // give states, by `names`, these values: `tensors`
    write,   // bring the values that were taken to the disks of the nodes `names`, as file `text`
    keep,    // write these `tensors`, with these `names`, as file `text`
    commit,  // write a manifest, `text`
    find,    // the manifest of `step` and `number`, an epoch
    read,    // bytes of a file, `text`: from `number` on, `count`
    prune,   // remove checkpoints but those in `text`
    report   // how far the training is, in `text`
  };
  std::uint64_t request = 0;
  Kind kind = Kind::look;
  Fence fence;
  std::int64_t step = 0;
  std::uint64_t number = 0, count = 0;
  std::string text = {};
  std::vector<std::string> names = {};
  std::vector<Tensor> tensors = {};
  std::string container = {};  // take: the container of the states
};

/// Any message. Its kind is its place here, in the first byte of what is written.
using NodeMessage =
    std::variant<Gossip, MakePlan, DropPlan, BeginRun, RunTokens, RunFailed, AbandonRun, LeftRun,
                 GetVariable, SetVariable, GetLoops, Answer, GetCosts, Probe, ProbeFor, InspectNode,
                 Inspected, PlanBroken, RunsBegun, ClearContainer, OperateNode, EagerProgram,
                 EagerSteps, EagerResults, CheckpointRequest, MeshValues>;

namespace detail {
template <class M, class... All>
constexpr std::uint8_t place_of(const std::variant<All...>*) {
  std::uint8_t place = 0;
  (void)((std::is_same_v<M, All> || (++place, false)) || ...);
  return place;
}
}  // namespace detail

template <class M>
inline constexpr std::byte kKind{detail::place_of<M>(static_cast<NodeMessage*>(nullptr))};
static_assert(std::variant_size_v<NodeMessage> < 128, "a kind is one byte of msgpack");

template <class M>
bool is_a(const Message& message) {
  return !message.head.empty() && message.head[0] == kKind<M>;
}

Message written(const NodeMessage& message);
/// Moves the tensors. Throws data_loss for anything that `written` does not return.
NodeMessage read_message(Message& message);
/// Sends a message by the priority of its kind.
template <class M>
void send(Transport& transport, Peer to, M message) {
  transport.send(to, M::kLane, written(NodeMessage(std::move(message))));
}

}  // namespace troupe
