// Plans over several nodes: has other nodes make plans of this one, and makes parts of theirs.
//
//   owner: prepare                               participant
//     │ MakePlan(part of the program) ───────────►│ request worker: make
//     │                                           │   waits if a participant is not connected yet,
//     │ ◄──────────────── Answer(status, states) ─│   and is tried again by `retry`
//     │ DropPlan ────────────────────────────────►│ drop
//
// Threads: `prepare`, `loops` and `costs` block, on a caller's thread; `make` and `drop` run on the
// request worker; the others on any thread.
//
// Ownership: a part of another node's plan is kept here until its owner drops it, or is lost.
//
// Invariants:
// 1. A part is kept only while there is a session with its owner.
// 2. A plan that waits for connections is tried again after every change of the cluster. `make`
//    looks at the view and enters the plan under one lock, and `retry` comes after the change.
// 3. The last reference to a plan is not dropped under the lock, because that sends messages.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <troupe/cluster/checkpoint/checkpoint_store.hpp>
#include <troupe/cluster/node/node_parts.hpp>
#include <troupe/cluster/node/state_service.hpp>
#include <troupe/cluster/runs/distributed_runs.hpp>

namespace troupe {

class PlanService {
 public:
  /// `runs`: with the node that it is a part of, which plans keep alive.
  /// `checkpoints`: knows the drivers of trainings whose plans are refused.
  PlanService(const NodeParts& node, StateService& states, const CheckpointStore& checkpoints,
              std::weak_ptr<DistributedRuns> runs)
      : node_(node), states_(states), checkpoints_(checkpoints), runs_(std::move(runs)) {}

  // ---- at the owner

  /// As Peers::prepare.
  std::shared_ptr<RemotePlan> prepare(const std::shared_ptr<const Plan>& plan,
                                      const Placed& placed);
  /// As RemotePlan::loops and costs. Costs that a node has not measured are left out.
  std::vector<LoopReport> loops(const DistributedPlan& plan);
  std::vector<NodeCost> costs(const DistributedPlan& plan);

  // ---- at the others

  /// Makes a part of a plan. Returns the answer for its owner; nothing if the plan waits.
  std::optional<Answer> make(Peer from, const std::shared_ptr<MakePlan>& plan);
  void drop(Peer from, RunKey key);
  /// Tries plans again that wait for connections.
  void retry();
  /// Returns a part that was made for another node; null if there is none.
  std::shared_ptr<CompiledPlan> find(RunKey key);
  std::vector<LoopReport> loops_of(RunKey plan);
  std::vector<NodeCost> costs_of(RunKey plan);
  /// Forgets parts that have these states, and has their owners make their plans anew.
  void break_with(const std::shared_ptr<StateStore>& states);
  /// Forgets parts of plans of this training's earlier drivers, which will be refused when their
  /// owners make them anew, and ends their runs.
  void break_older(const Fence& fence);
  /// Refuses plans from now on, and has the owners of the present ones make them anew.
  void drain();
  /// Forgets the plans of a node whose session has ended.
  void lost(Peer peer, const NodeId& node);
  /// Tries nothing again from now on.
  void close();

 private:
  struct Waiting {
    Peer from;
    std::shared_ptr<MakePlan> plan;
  };
  using PeersByName = std::map<std::string, Peer>;

  bool try_make(Peer from, const std::shared_ptr<MakePlan>& m, std::uint64_t& states);
  std::optional<PeersByName> connected_with(const NodeId& owner, Peer from,
                                            const std::shared_ptr<MakePlan>& m);
  template <class Question>
  std::vector<std::uint64_t> ask_others(const DistributedPlan& plan);
  /// Forgets the parts that `is_broken` accepts, and notifies their owners.
  template <class IsBroken>
  void break_if(IsBroken is_broken);

  const NodeParts node_;
  StateService& states_;
  const CheckpointStore& checkpoints_;
  const std::weak_ptr<DistributedRuns> runs_;

  std::mutex mutex_;                                       // guards everything below
  std::map<RunKey, std::shared_ptr<CompiledPlan>> plans_;  // made for others
  std::map<RunKey, Fence> fences_;                         // plans' of a training's step
  std::vector<Waiting> waiting_;                           // for connections
  bool is_closed_ = false, is_draining_ = false;
};

}  // namespace troupe
