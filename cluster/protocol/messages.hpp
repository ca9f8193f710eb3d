// The messages between nodes, as plain structs. Each has one Kind; its fields, named once in
// messages.cpp, are written and read. cluster/runs/RUNS.md and the headers in cluster/node have the
// order of messages.
//
// To add a message: a Kind, a struct with `kKind` and `kLane`, a line in `fields`, and a case in
// `NodeCore::dispatch`.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <troupe/actors/executor/loop_report.hpp>
#include <troupe/actors/executor/partition_messages.hpp>
#include <troupe/actors/executor/remote_plan.hpp>
#include <troupe/cluster/membership/membership.hpp>
#include <troupe/cluster/protocol/archive.hpp>
#include <troupe/cluster/protocol/node_report.hpp>
#include <troupe/ops/graph/state.hpp>

namespace troupe {

enum class MessageKind : std::uint8_t {
  gossip,
  make_plan,
  drop_plan,
  begin_run,
  tokens,
  run_failed,
  abandon_run,
  left_run,
  get_variable,
  set_variable,
  get_loops,
  answer,
  get_costs,
  probe,
  probe_for,
  inspect,
  inspected,
  plan_broken,
  runs_begun,
  clear_container,
  small_tokens,  // as RunTokens: small_tokens.hpp
  operate
};

/// A node as others know it.
struct NodeId {
  std::string name;
  std::uint64_t incarnation = 0;
  std::string address;
};

/// A message from the sender's membership to the receiver's.
struct Gossip {
  static constexpr MessageKind kKind = MessageKind::gossip;
  static constexpr Lane kLane = Lane::control;
  Member from;
  MembershipMessage message;
};
/// Owner to participant: a plan to make. Its part of the placed program follows in the same
/// message.
struct MakePlan {
  static constexpr MessageKind kKind = MessageKind::make_plan;
  static constexpr Lane kLane = Lane::data;
  std::uint64_t request = 0;
  std::uint64_t plan = 0;            // among the owner's
  std::vector<NodeId> participants;  // the owner included
  std::int32_t call_depth = 0;
  std::uint64_t fingerprint = 0;  // fingerprint of the participant's part
  std::string container = {};     // the container of its states; empty: the owner's own
};
/// Owner to participant: no run of this plan will begin any more.
struct DropPlan {
  static constexpr MessageKind kKind = MessageKind::drop_plan;
  static constexpr Lane kLane = Lane::data;
  std::uint64_t plan = 0;
};
/// Owner to participant. `run` goes up.
struct BeginRun {
  static constexpr MessageKind kKind = MessageKind::begin_run;
  static constexpr Lane kLane = Lane::data;
  std::uint64_t run = 0;  // among those over several nodes (RunKey)
  std::uint64_t id = 0;   // among all of the owner's runs: its name on every node
  std::uint64_t plan = 0;
  std::uint64_t step = 0;
  std::uint64_t seed = 0;
  std::vector<std::pair<std::int32_t, Tensor>> feeds;  // feeds of the participant's partitions
};
/// To a partition of the receiver's (partition_messages.hpp: Token, Grant).
struct RunToken {
  std::int32_t partition = 0;
  std::int32_t receive = 0;
  bool is_dead = false;
  Path path;
  Value value;
  std::int32_t times = 1;  // for as many iterations, from that of its path on
};
struct RunGrant {
  std::int32_t partition = 0;
  std::int32_t send = 0;
  Path path;
  std::int64_t last = 0;
};
/// Participant to participant: tokens and grants of one turn of a partition, all or the first of
/// them. Grants alone go with control priority.
struct RunTokens {
  static constexpr MessageKind kKind = MessageKind::tokens;
  static constexpr Lane kLane = Lane::data;
  static constexpr std::size_t kMost = 1024;  // tokens, and grants; partitions collect 64 in all
  RunKey run;
  std::vector<RunGrant> grants;
  std::vector<RunToken> tokens;
};
/// Participant to owner.
struct RunFailed {
  static constexpr MessageKind kKind = MessageKind::run_failed;
  static constexpr Lane kLane = Lane::control;
  std::uint64_t run = 0;
  Status status;
};
/// Owner to participants: the run has failed. With why, because each of them keeps that, also one
/// that has done its part before.
struct AbandonRun {
  static constexpr MessageKind kKind = MessageKind::abandon_run;
  static constexpr Lane kLane = Lane::control;
  std::uint64_t run = 0;
  std::uint64_t id = 0;    // as in BeginRun
  std::uint64_t plan = 0;  // likewise
  Status status;
};
/// Participant to owner, its last message of a run: behind its tokens.
struct LeftRun {
  static constexpr MessageKind kKind = MessageKind::left_run;
  static constexpr Lane kLane = Lane::data;
  std::uint64_t run = 0;
  Status status;
  std::vector<std::pair<std::int32_t, Tensor>> fetches;
  RunTotals done = {};  // by all of its partitions
};
struct GetVariable {
  static constexpr MessageKind kKind = MessageKind::get_variable;
  static constexpr Lane kLane = Lane::data;
  std::uint64_t request = 0;
  StateSpec variable;
  std::string container = {};
};
struct SetVariable {
  static constexpr MessageKind kKind = MessageKind::set_variable;
  static constexpr Lane kLane = Lane::data;
  std::uint64_t request = 0;
  StateSpec variable;
  Tensor value;
  std::string container = {};
};
/// Drops the states of a container; empty: those of the sender's own programs. The answer's
/// `states` are how many, or that the receiver names the container itself, and so keeps its own.
struct ClearContainer {
  static constexpr MessageKind kKind = MessageKind::clear_container;
  static constexpr Lane kLane = Lane::data;
  static constexpr std::uint64_t kKept = UINT64_MAX;
  std::uint64_t request = 0;
  std::string container = {};
};
/// Owner to participant: asks for the loop reports of a plan's partitions there.
struct GetLoops {
  static constexpr MessageKind kKind = MessageKind::get_loops;
  static constexpr Lane kLane = Lane::data;
  std::uint64_t request = 0;
  std::uint64_t plan = 0;
};
/// To a request.
struct Answer {
  static constexpr MessageKind kKind = MessageKind::answer;
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
  static constexpr MessageKind kKind = MessageKind::get_costs;
  static constexpr Lane kLane = Lane::data;
  std::uint64_t request = 0;
  std::uint64_t plan = 0;
};
/// Is answered at once: to see how long a message with so much in it takes.
struct Probe {
  static constexpr MessageKind kKind = MessageKind::probe;
  static constexpr Lane kLane = Lane::data;
  std::uint64_t request = 0;
  Tensor load;
};
/// Asks a node to send such a probe to another, and how long it took.
struct ProbeFor {
  static constexpr MessageKind kKind = MessageKind::probe_for;
  static constexpr Lane kLane = Lane::data;
  std::uint64_t request = 0;
  std::string node;
  std::uint64_t bytes = 0;
};
/// Asks another node for its state.
struct InspectNode {
  static constexpr MessageKind kKind = MessageKind::inspect;
  static constexpr Lane kLane = Lane::control;
  std::uint64_t request = 0;
  NodeQuestion question;
};
/// The answer to it.
struct Inspected {
  static constexpr MessageKind kKind = MessageKind::inspected;
  static constexpr Lane kLane = Lane::data;
  std::uint64_t request = 0;
  Status status;
  NodeReport report;
};

/// Participant to owner: it has lost another participant, or the states were cleared, so that no
/// run of this plan can begin there any more.
struct PlanBroken {
  static constexpr MessageKind kKind = MessageKind::plan_broken;
  static constexpr Lane kLane = Lane::control;
  std::uint64_t plan = 0;
};

/// Owner to any, its first message in a session: up to this number its runs have begun, and
/// none of them begins in this session.
struct RunsBegun {
  static constexpr MessageKind kKind = MessageKind::runs_begun;
  static constexpr Lane kLane = Lane::data;
  std::uint64_t last = 0;
};

/// An operator's wish, to any node, which passes it on once.
struct OperateNode {
  static constexpr MessageKind kKind = MessageKind::operate;
  static constexpr Lane kLane = Lane::data;
  enum class What : std::uint8_t { cancel, drain };
  std::uint64_t request = 0;
  What what = What::cancel;
  std::string node;       // to which it goes
  std::uint64_t run = 0;  // cancel: its number there
  bool is_passed_on = false;
};

/// The kind, which comes first.
MessageKind kind_of(MessageReader& reader);

/// RunTokens of what partitions of `plan` have posted, which is of one run and for one node: as of
/// the struct, without making one.
MessageWriter written(const RunKey& run, std::span<Posted> posted, const Plan& plan);

// Defined for every struct above.
template <class M>
MessageWriter written(const M& message);
template <class M>
void read_fields(MessageReader& reader, M& message);
/// Sends a message by the priority of its kind.
template <class M>
void send(Transport& transport, Peer to, const M& message) {
  transport.send(to, M::kLane, written(message).take());
}
template <class M>
M read_all(MessageReader& reader) {
  M message;
  read_fields(reader, message);
  reader.end();
  return message;
}

}  // namespace troupe
