// Operators' requests to nodes: to cancel a run, to be drained.
//
//   operations.cancel("worker1", 17);      // run worker1/17; blocks
//   operations.drain("worker2");           // it takes no new partitions
//   operations.handle(peer, operate);      // by the listener
//
//   operator's node ──OperateNode──► any node ──OperateNode (passed on)──► the node that is meant
//                   ◄──────────────── Answer ◄────────────────────────────
//
// The node that is asked first passes a request on, because an operator's node listens nowhere, and
// so has no session with a program that does not listen either.
//
// A drained node refuses plans and eager programs, and has the owners of the plans that it takes
// part in make them anew. Runs that are under way, or begin before their owner knows, go on.
//
// Threads: any. Ownership: refers to the node's services. Invariants: 1. a request is passed on
// once at most; 2. the requests that wait for another node's answer are bounded; 3. a drained node
// stays drained.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include <troupe/cluster/node/eager_service.hpp>
#include <troupe/cluster/node/node_parts.hpp>
#include <troupe/cluster/node/plan_service.hpp>
#include <troupe/cluster/protocol/messages.hpp>

namespace troupe {

class Operations {
 public:
  Operations(const NodeParts& node, PlanService& plans, EagerService& eager)
      : node_(node), plans_(plans), eager_(eager) {}

  /// Cancels a run by its number at its owner. Throws not_found if the owner is not there, or the
  /// run is not under way. Blocks.
  void cancel(const std::string& owner, std::uint64_t run);
  /// Drains a node; returns how many runs it still takes part in. Throws not_found. Blocks.
  std::size_t drain(const std::string& node);
  void handle(Peer from, OperateNode&& m);

  bool is_draining() const { return is_draining_.load(std::memory_order_relaxed); }
  /// True if this node is drained and takes part in no run.
  bool is_drained() const;

 private:
  static constexpr int kMostPassedOn = 64;

  RequestTable::Reply ask(OperateNode m);
  Answer done_here(const OperateNode& m);
  void pass_on(Peer from, OperateNode&& m);

  const NodeParts node_;
  PlanService& plans_;
  EagerService& eager_;
  std::atomic<bool> is_draining_{false};  // publishes nothing but itself
  std::atomic<int> passed_on_{0};         // requests that wait for the answer of another node
};

}  // namespace troupe
