// The node that runs over several nodes need: NodeCore implements it, so that cluster/runs includes
// nothing of cluster/node.
#pragma once

#include <string>
#include <vector>

#include <troupe/actors/executor/loop_report.hpp>
#include <troupe/actors/executor/remote_plan.hpp>
#include <troupe/cluster/transport/transport.hpp>

namespace troupe {

class DistributedPlan;

/// Called from any thread, without a lock of DistributedRuns.
class RunHost {
 public:
  /// Returns the name of a connected peer.
  virtual std::string name_of(Peer peer) const = 0;
  /// Ends everything that is under way with this peer: its session has ended.
  virtual void lost(Peer peer, const Status& why) = 0;
  /// Returns the reports of a plan's loops, or kernels, on the other nodes. Blocks.
  virtual std::vector<LoopReport> loops(const DistributedPlan& plan) = 0;
  virtual std::vector<NodeCost> costs(const DistributedPlan& plan) = 0;

 protected:
  ~RunHost() = default;
};

}  // namespace troupe
