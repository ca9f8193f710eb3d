// A node of a cluster: an engine that other nodes can reach, and that reaches theirs.
//
//   ClusterNode node({.name = "me", .transport = tcp, .join = {"tcp://10.0.0.7:7117"}});
//   node.wait_for({"worker1"}, 10s);
//   Graph g;  ...  { auto there = g.on_device("/node:worker1/cpu:0");  y = matmul(x, w); }
//   node.engine().run(g, {{x, value}}, {y});             // as with any engine
//
// The program is the same on one engine and on many nodes: device names decide where its parts run.
// A name without a node means the node that compiles. A state lives where it was declared;
// `Engine::get` and `set` find it there.
//
// Errors: a run that fails on another node throws the error here that it would have thrown here,
// naming the node. A lost node ends the runs in which it took part with `unavailable`. Runs over
// the other nodes go on, and so does the cluster. A node is lost if it does not answer for long
// enough (cluster/membership/membership.hpp), or has missed messages; it may come back.
//
// Ownership: the node owns its engine; functions and runs must not outlive it. Threads: any.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/cluster/membership/membership.hpp>
#include <troupe/cluster/protocol/node_report.hpp>
#include <troupe/cluster/runs/early_limits.hpp>
#include <troupe/cluster/transport/transport.hpp>

namespace troupe {

namespace detail {

class CheckpointService;
class Disk;
class NodeCore;
struct PoolCounters;

}  // namespace detail

class Records;

struct NodeOptions {
  std::string name;  // unique in the cluster; no '/'
  /// Makes what this node is reached by, given its name and incarnation.
  std::function<std::unique_ptr<Transport>(PeerInfo self)> transport;
  // addresses of nodes, HOST:PORT for one of tcp; they name the others
  std::vector<std::string> join = {};
  EngineOptions engine = {};
  /// The container of states that programs of this node keep on other nodes. Empty: the states
  /// belong to this node and are freed with it. A name: the states belong to all nodes that give
  /// this name, and stay as long as the nodes that hold them.
  std::string container = {};
  // `key=value` and spaces: what others know of it, for placement; `placement=named`: it gets only
  // what names it
  std::string labels = {};
  MembershipOptions membership = {};  // time until a silent node counts as dead
  detail::EarlyLimits early = {};
  /// A folder of this node's own disk, where it keeps shards of trainings' checkpoints, and copies
  /// of those of other nodes; empty: it keeps none.
  std::string state = {};
  detail::Disk* disk = nullptr;  // for that folder; must outlive the node; null: the machine's
  // called with errors of the node's peers; from any thread
  std::function<void(const std::string& line)> log = {};
  // greater each time a node of this name starts; 0: by the clock
  std::uint64_t incarnation = 0;
  /// The time that inspections use, in nanoseconds since the Unix epoch; none: the system's clock.
  /// For simulations.
  std::function<std::int64_t()> clock = {};
  /// Deterministic engines: lets something happen on another node or between them; false if nothing
  /// is pending.
  std::function<bool()> step = {};
};

/// Counts of messages. Premature messages waited for runs that had not begun on this node. Late
/// ones came for runs that were over, and were dropped. Messages that violate the protocol, such as
/// repeated tokens, were dropped too. Some messages were run on the thread that brought them
/// (cluster/runs/RUNS.md).
struct RunCounters {
  std::uint64_t early = 0;
  std::uint64_t late = 0;
  std::uint64_t refused = 0;
  std::uint64_t taken = 0;
};

namespace detail {

/// The result of `ClusterNode::clear_container`.
struct Cleared {
  std::size_t states = 0;  // states that were dropped
  // nodes that name the container themselves, and keep their states
  std::vector<std::string> kept;
};

}  // namespace detail

class ClusterNode {
 public:
  /// Throws invalid_argument for a name, labels or an address to join that are none, and
  /// unavailable if its own address is taken.
  explicit ClusterNode(NodeOptions options);
  /// Leaves: runs in which this node takes part end, and other nodes are notified.
  ~ClusterNode();
  ClusterNode(const ClusterNode&) = delete;
  ClusterNode& operator=(const ClusterNode&) = delete;

  Engine& engine();
  const std::string& name() const;
  /// Returns the address for other nodes; empty: the node does not listen.
  std::string address() const;
  /// Names of the nodes that can be worked with, this one first: connected, and not considered
  /// dead.
  std::vector<std::string> nodes() const;
  /// All nodes that are known, this one included, also those that were lost a while ago.
  std::vector<detail::Member> members() const;
  /// Is it in the cluster? Not before one of `options.join` is connected, if there are any.
  bool has_joined() const;
  /// Not ok if another process of this name has started since, or one before with a later clock:
  /// this one takes part in nothing any more.
  Status status() const;
  /// Not 0 if `status` says that this machine's clock is behind the one with which an earlier node
  /// of this name was started: a node with a greater `NodeOptions::incarnation` takes its place.
  std::uint64_t outdated_by() const;
  /// Asks for a connection.
  void connect(const std::string& address);
  /// Waits until all of these are connected; throws deadline_exceeded, naming those that are not
  /// and why.
  void wait_for(const std::vector<std::string>& names, std::chrono::nanoseconds timeout);
  /// Waits until one of `options.join` is connected, and asks again while none answers. Throws
  /// unavailable with the answer of each. A name that does not resolve may do so later: if none
  /// does, the engine's log reports it meanwhile. Returns false if `gives_up`, which is called ten
  /// times a second, has returned true.
  bool wait_joined(std::chrono::nanoseconds timeout, const std::function<bool()>& gives_up = {});
  /// Drops the states of programs in a container (NodeOptions::container; empty: the states of this
  /// node's own programs on others) on these nodes; none named: on all. Runs under way end with the
  /// states that they have. Afterwards queues are empty and actors begin anew. If the container is
  /// this node's own, variables have their initial value for its programs. For any other program
  /// that used one the value is lost (cluster/NOTES.md). A node that names the container itself
  /// keeps its own. Throws not_found for a node that is not there. Not from within an actor.
  detail::Cleared clear_container(const std::string& container,
                                  const std::vector<std::string>& nodes = {});
  /// Cancels a run, `a/17`, of any node. Throws invalid_argument for a text that names no run, and
  /// not_found, with the runs there are, if its owner is not there or it is not under way. Not from
  /// within an actor.
  void cancel_run(const std::string& run);
  /// Has a node take no new partitions: plans that it takes part in are made anew without it, and
  /// `troupe node` exits when its runs have ended. Returns how many there are. Throws not_found for
  /// one that is not there. Not from within an actor.
  std::size_t drain(const std::string& node);
  /// True if this node was drained and takes part in no run.
  bool is_drained() const;
  TransportCounters counters() const;
  RunCounters run_counters() const;
  MembershipCounters membership_counters() const;
  /// Returns the counters of its engine's workers.
  detail::PoolCounters pool_counters() const;
  /// Returns the time of the last ping of each node, with its answer; 0: none has come back.
  std::map<std::string, std::chrono::nanoseconds> round_trips() const;
  /// Asks all known nodes, this one included, or one of them. Blocks for at most `patience`. The
  /// report names each node that did not answer in time, with the reason. Not from within an actor.
  ClusterReport inspect(const NodeQuestion& question = {},
                        std::chrono::nanoseconds patience = std::chrono::milliseconds(500),
                        const std::string& only = {}) const;
  /// Looks twice, `apart` from each other: which runs hang, and why (`hangs`); up to five times
  /// more where a partition has had no turn for no known reason, since its machine may be busy.
  /// Takes three times `patience` and `apart` at most, or eight times and twice.
  std::vector<detail::Diagnosis> diagnose(
      std::chrono::nanoseconds apart = std::chrono::milliseconds(400),
      std::chrono::nanoseconds patience = std::chrono::milliseconds(300)) const;
  /// The longest that a node of so many can have stopped answering before the runs it takes part in
  /// end.
  std::chrono::nanoseconds detection_bound(std::size_t nodes) const;

  /// Returns the checkpoints of trainings on this node and others, for the folder that builds on it
  /// (cluster/training).
  detail::CheckpointService& checkpoints() const;

  /// Makes this node's training records available to all nodes (NodeQuestion::Kind::scalars), until
  /// `forget`; the records outlive that call. If several were added, the last counts. The
  /// inspection server calls both.
  void tell_of(const Records& records) const;
  void forget(const Records& records) const;

 private:
  std::shared_ptr<detail::NodeCore> core_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace troupe
