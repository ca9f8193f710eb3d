// A driver's place in the cluster: its epoch, which all nodes know, and its progress, which any
// node shows (`troupe runs`, `troupe attach`).
//
//   TrainingDriver driver(node.checkpoints(), "demo");
//   driver.claim();          // before the program is placed: on all nodes that are there
//   driver.check();          // before each step: throws if a later driver acts
//   driver.report({.step = 40, .steps = 1000, .state = "trains"});
//
// Nodes are claimed in the order of their names, so that of two drivers that begin at a time one is
// refused by the first node, and the other one by none.
//
// Threads: one at a time; `fence` and `check` any. Ownership: the service outlives the driver.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>

#include <troupe/cluster/node/checkpoint_service.hpp>

namespace troupe::detail {

class TrainingDriver {
 public:
  static constexpr const char* kEnded = "ended";  // the state of a training that has done its steps

  /// `training`: its name; empty: the cluster does not know it, and `claim` and `report` do
  /// nothing.
  TrainingDriver(CheckpointService& service, const std::string& training);

  /// Makes this the training's driver on all nodes that are there: in an epoch after each of those
  /// that they know, and after its own of an earlier call, so that no name of a checkpoint is used
  /// again. A node whose disk is full obeys it too, keeps no checkpoints, and is logged. Throws
  /// failed_precondition, naming both drivers, if another one has a later epoch than its own.
  void claim(const std::function<void(const std::string& line)>& log = {});
  void check() const;
  /// The training, epoch and driver that plans and requests carry.
  const Fence& fence() const { return fence_; }
  /// Returns the answers of nodes when `claim` looked last, by their names.
  const std::map<std::string, TrainingsReport>& nodes() const { return nodes_; }
  /// Sends progress to all nodes: if its state differs from that of the last one, or a second has
  /// passed. The last one, with kEnded, blocks until they have it.
  void report(DriverProgress progress);

 private:
  CheckpointService& service_;
  Fence fence_;  // epoch 0: none was claimed
  std::map<std::string, TrainingsReport> nodes_;
  std::string reported_;  // the state of the last report
  std::chrono::steady_clock::time_point next_report_{};
};

}  // namespace troupe::detail
