// Training that survives the loss of nodes: a loop over steps that owns placement, checkpoints and
// recovery.
//
//   TrainingProgram network(Graph& g, const collective::Group& replicas);
//   std::vector<Tensor> batch_of(std::int64_t step);
//   Training training(node, {.replicas = 4, .folder = "checkpoints"}, network, batch_of);
//   std::vector<Tensor> last = training.run(1000);
//
// The number of replicas is the program's, not the cluster's. Replicas are placed over the nodes
// that are there, several on one node where there are fewer nodes, so that losing or adding a node
// changes speed and no bit of the result. Draws and feeds depend on the step alone.
//
// A step that ends with `unavailable`, because a node was lost, is given up. The loop waits until
// nodes are there, builds the program again over these, sets all variables to the last checkpoint,
// and goes on from its step. The log gets a line for each decision. Any other error ends the run.
//
// A checkpoint is taken between steps, when no run is in flight: so it is consistent over all
// nodes. Handles of the values are taken, and training goes on while they are written: by each node
// to its own disk (NodeOptions::state) and those of others, or to one folder. A training that is
// begun again, by any node, finds the newest complete one and goes on from there. A training with a
// name has one driver at a time: nodes refuse steps and checkpoints of the one before.
//
// Threads: one at a time. Ownership: the node, and what the functions refer to, must outlive it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/training/checkpoint_folder.hpp>
#include <troupe/ops/collectives/arrival_step.hpp>
#include <troupe/ops/collectives/collectives.hpp>
#include <troupe/ops/collectives/sharded_variable.hpp>

namespace troupe {

struct TrainingOptions {
  int replicas = 2;  // at least 2
  /// One folder for its checkpoints, made if it is not there; empty: nodes keep them on their own
  /// disks (NodeOptions::state), which needs a name.
  std::string folder = {};
  /// Its name in the cluster; empty, with a folder: the cluster does not know it.
  std::string name = {};
  int copies = 1;              // nodes that have a shard besides the one that wrote it
  std::int64_t every = 10;     // steps between two checkpoints
  CheckpointPolicy keep = {};  // which checkpoints stay
  /// The fetch, one number, that is a checkpoint's metric for `keep.best`: lower is better. -1:
  /// none.
  int metric = -1;
  /// Nodes that replicas go to, by name; empty: all others that are connected, but for those that
  /// take only what names them (NodeOptions::labels), and this one where there is no other.
  std::vector<std::string> nodes = {};
  /// How long to wait for a node to be there after one was lost.
  std::chrono::nanoseconds patience = std::chrono::seconds(60);
  // one line at a time, from any thread; empty: nowhere
  std::function<void(const std::string& line)> log = {};
};

/// A program for one step, built anew for each placement.
struct TrainingProgram {
  std::vector<Expr> feeds;
  std::vector<Expr> fetches;  // a step's: losses, and the update of variables
  /// Run once, before the first step of all: `MirroredVariable::start`, say.
  std::vector<Expr> start = {};
  /// Gradients are applied as they arrive (autodiff/parallel/data_parallel.hpp): a step is one
  /// update. Feeds are as many of each replica, replica by replica. Results depend on the order of
  /// arrival, which the log says. No gradient is lost, and none is applied twice.
  std::optional<ArrivalStep> arrivals = {};
  /// Tables that a checkpoint may have in another number of shards, which were made by the same
  /// kind of partitioner.
  struct Sharded {
    ShardedVariable table;
    Partitioner partitioner;
  };
  std::vector<Sharded> sharded = {};
};

struct TrainingCounters {
  std::int64_t steps = 0;        // ended well, repeated ones too
  std::int64_t checkpoints = 0;  // written
  std::int64_t recoveries = 0;   // times that the program was built again after a loss
  std::int64_t repeated = 0;     // steps done again because they came after the last checkpoint
  std::chrono::nanoseconds stood_still{};  // time that steps waited for checkpoints
};

class Training {
 public:
  /// Builds the step of all replicas; member r of the group is replica r's device. Equal graphs
  /// each time: names, order and shapes do not depend on the devices.
  using Build = std::function<TrainingProgram(Graph& graph, const collective::Group& replicas)>;
  /// The feeds of a step, which depend on its number alone.
  using Data = std::function<std::vector<Tensor>(std::int64_t step)>;

  /// Throws invalid_argument for options that mean nothing.
  Training(ClusterNode& node, TrainingOptions options, Build build, Data data);
  ~Training();
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  /// Trains until `steps` steps are done, those of earlier runs included, and writes a checkpoint.
  /// Returns the fetches of the last step; none if there was nothing left to do. Throws unavailable
  /// if no node is there within the patience, data_loss naming the file where no checkpoint can be
  /// read, failed_precondition, naming both, if a later driver acts, and the error of a step or of
  /// the disk.
  std::vector<Tensor> run(std::int64_t steps);

  /// Steps that are done.
  std::int64_t step() const;
  TrainingCounters counters() const;
  /// The replicas' devices now.
  std::vector<std::string> devices() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe
