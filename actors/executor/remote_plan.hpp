// Other nodes, as the engine sees them: an engine that is a node of a cluster has `Peers`, and each
// of its plans over several nodes a `RemotePlan`. cluster/ implements both; here nothing is known
// of messages, encodings or connections.
//
//   optimise, place ─► make_plan ─► Peers::prepare ─► the other nodes make their parts of the plan, or say what they lack
//   begin a run     ─► RemotePlan::start ─► they begin theirs ─► tokens, grants: RemotePlan::post, both ways
//                                        ◄─ each leaves the run once; or somebody fails ─► RemotePlan::failed
//
// Threads: all of it from any thread.
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
#include <troupe/ops/graph/state.hpp>

namespace troupe {

/// What a node of a program took where it ran, as measured.
struct NodeCost {
  std::int32_t node = 0;
  double ns = 0;
};

/// The other nodes of a plan. Dropping it lets them forget the plan.
class RemotePlan {
 public:
  virtual ~RemotePlan() = default;
  /// How many.
  virtual int nodes() const = 0;
  /// One of them is lost: the plan is of no use any more.
  virtual bool is_broken() const = 0;
  /// Tokens and Grants to partitions of theirs, which are moved from; for a run that is over they
  /// go nowhere.
  virtual void post(std::span<Posted> posted) = 0;
  /// At the owner: gives the run its key and begins it on the others. They leave it once each, lost
  /// ones too.
  virtual void start(Run& run) = 0;
  /// What its loops did on the other nodes. Blocks.
  virtual std::vector<LoopReport> loops() = 0;
  /// What kernels took there. Blocks.
  virtual std::vector<NodeCost> costs() = 0;
  /// The run has failed on this node, which abandons it: the owner tells all others, any other
  /// tells the owner.
  virtual void failed(Run& run) = 0;
  /// A partition here has dropped what came from one of theirs.
  virtual void refused(Run& run, std::int32_t partition, const std::string& what) = 0;
};

/// Whose states: those of one owner, by its incarnation, which go with it; or of all who name the
/// same container, which stay.
struct StateOwner {
  std::string container;
  std::uint64_t owner = 0;
  auto operator<=>(const StateOwner&) const = default;
};

class Peers {
 public:
  /// This node's name.
  virtual const std::string& name() const = 0;
  /// Tells it from those of that name that were there before.
  virtual std::uint64_t incarnation() const = 0;
  /// All nodes that are there, this one first, with their labels: what placement may choose from.
  virtual std::vector<NodeLabels> nodes_with_labels() const { return {{name(), {}}}; }
  /// Has the other nodes make the plan. Blocks; throws what they say, naming the node, and
  /// unavailable, not_found for nodes that are not there.
  virtual std::shared_ptr<RemotePlan> prepare(const std::shared_ptr<const Plan>& plan,
                                              const Placed& placed) = 0;
  /// What links between nodes take, as far as there is a clock to measure it by. Blocks where it is
  /// not known yet.
  virtual std::vector<LinkBetween> links() { return {}; }
  /// A variable's value, on the host, and a new one. Block; throw what the node says.
  virtual Tensor get(const std::string& node, const StateSpec& variable) = 0;
  virtual void set(const std::string& node, const StateSpec& variable, Tensor value) = 0;
  /// Asks the other nodes of a run what they do of it; each that answers is heard once, on any
  /// thread, others never.
  virtual void ask_about(const Run& run, std::function<void(const RunSnapshot&)> heard) = 0;
  /// Without threads: lets something happen elsewhere; false if nothing is pending.
  virtual bool step() = 0;

 protected:
  ~Peers() = default;
};

}  // namespace troupe
