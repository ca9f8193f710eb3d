// Peers, RemotePlan: the engine's interface to the other nodes of a cluster. An engine that is a
// node has `Peers`; each of its plans over several nodes has a `RemotePlan`. cluster/ implements
// both. Messages, encodings and connections are hidden behind them.
//
//   optimise, place ─► make_plan ─► Peers::prepare ─► the other nodes make their parts of the plan,
//                                                     or report what they lack
//   begin a run ─► RemotePlan::start ─► the other nodes begin their parts
//                                    ◄─► tokens and grants, both ways: RemotePlan::post
//                                    ◄─► values of a mesh's devices, likewise: RemotePlan::meet
//                                    ◄── each node leaves the run once
//   a part fails ─► RemotePlan::failed
//
// Threads: any thread may call any method.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <troupe/actors/executor/loop_report.hpp>
#include <troupe/actors/executor/partition_messages.hpp>
#include <troupe/actors/placement/constraint.hpp>
#include <troupe/actors/placement/cost_options.hpp>
#include <troupe/actors/placement/placement.hpp>
#include <troupe/actors/plan/meeting_place.hpp>
#include <troupe/ops/graph/state.hpp>

namespace troupe {

/// The measured cost of a node of a program, on the cluster node that ran it.
struct NodeCost {
  std::int32_t node = 0;
  double ns = 0;
};

/// The other nodes of a plan. Its destructor lets them free the plan.
class RemotePlan {
 public:
  virtual ~RemotePlan() = default;
  /// Returns the number of other nodes.
  virtual int nodes() const = 0;
  /// True if one of the nodes is lost: the plan cannot run any more.
  virtual bool is_broken() const = 0;
  /// Sends Tokens and Grants to partitions of the other nodes, and moves from them. Messages of a
  /// run that is over are dropped.
  virtual void post(std::span<Posted> posted) = 0;
  /// Sends values of this node's devices of a mesh to those of another node, which meet at a place
  /// (actors/plan/exchange.hpp). Dropped if the run `run` of this engine is over.
  virtual void meet(std::uint64_t run, std::int32_t node, const MeetingPlace& place,
                    std::vector<Tensor> values) = 0;
  /// Called at the owner: gives the run its key and begins it on the other nodes. Each of them
  /// leaves the run once, a lost node too.
  virtual void start(Run& run) = 0;
  /// Returns the reports of the plan's loops on the other nodes. Blocks.
  virtual std::vector<LoopReport> loops() = 0;
  /// Returns the measured costs of kernels on the other nodes. Blocks.
  virtual std::vector<NodeCost> costs() = 0;
  /// Reports that the run has failed on this node, which abandons it. The owner notifies all other
  /// nodes; any other node notifies the owner.
  virtual void failed(Run& run) = 0;
  /// Reports that a partition here has dropped a message from `partition` of another node.
  virtual void refused(Run& run, std::int32_t partition, const std::string& what) = 0;
};

/// Names a set of states. With `owner` it is the states of that incarnation, which are freed with
/// it. With `container` it is shared by all nodes that name the container, and stays.
struct StateOwner {
  std::string container;
  std::uint64_t owner = 0;
  auto operator<=>(const StateOwner&) const = default;
};

class Peers {
 public:
  /// Returns this node's name.
  virtual const std::string& name() const = 0;
  /// Returns a number that distinguishes this node from earlier nodes of its name.
  virtual std::uint64_t incarnation() const = 0;
  /// Returns the nodes that placement may choose from: all present nodes, this one first, with
  /// their labels.
  virtual std::vector<NodeLabels> nodes_with_labels() const { return {{name(), {}}}; }
  /// Makes the plan on the other nodes. Blocks. Throws their errors, naming the node, and
  /// unavailable or not_found for nodes that are absent.
  virtual std::shared_ptr<RemotePlan> prepare(const std::shared_ptr<const Plan>& plan,
                                              const Placed& placed) = 0;
  /// Returns the costs of links between nodes; empty without a clock to measure them by. Blocks
  /// while a cost is unknown.
  virtual std::vector<LinkBetween> links() { return {}; }
  /// Returns a variable's value, on the host. Blocks; throws the node's error.
  virtual Tensor get(const std::string& node, const StateSpec& variable) = 0;
  /// Sets a variable. Blocks; throws the node's error.
  virtual void set(const std::string& node, const StateSpec& variable, Tensor value) = 0;
  /// Returns a device of another node for eager scopes (ops/eager/remote_device.hpp), made on first
  /// use. Throws not_found if there is no such node.
  virtual Device& remote_device(const std::string& full_name) {
    throw Error(Code::not_found, "there is no node of device '" + full_name + "'");
  }
  /// Asks the other nodes of a run for their snapshots of it. Calls `heard` once for each node that
  /// answers, on any thread, and never for the others.
  virtual void ask_about(const Run& run, std::function<void(const RunSnapshot&)> heard) = 0;
  /// In an engine without threads: runs one step of another node; false if nothing is pending.
  virtual bool step() = 0;

 protected:
  ~Peers() = default;
};

}  // namespace troupe
