// States of programs on other nodes than their own: on behalf of other nodes here, and of this
// node's programs elsewhere.
//
//   states.get("worker1", variable);  states.set("worker1", variable, value);   // blocks
//   states.handle(peer, owner, get_variable, bytes);                             // by the listener
//
// Threads: `get`, `set` and `clear_container` block, on a caller's thread; `handle` on any. Its
// work runs on the request worker, in order with earlier requests for plans.
//
// Invariants:
// 1. Every life of an owner's states has a number of its own, also over lives of this node.
// 2. A value that was lost is missed: an answer with another number than the last throws
//    failed_precondition, until the value is set again. No program continues with an initial value
//    in place of the one that it had.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/node/node_parts.hpp>
#include <troupe/cluster/runs/distributed_runs.hpp>

namespace troupe {

class StateService {
 public:
  /// Has plans that have these states made anew.
  using BreakPlans = std::function<void(const std::shared_ptr<StateStore>&)>;

  StateService(const NodeParts& node, DistributedRuns& runs, BreakPlans break_plans)
      : node_(node), runs_(runs), break_plans_(std::move(break_plans)) {}

  // ---- here, for others

  /// Returns the states of an owner's programs, made on first use.
  EngineImpl::OthersStates states_for(std::uint64_t owner, const std::string& container);
  // `owner`: the incarnation of `from`; `bytes`: of the message, which are kept while it waits.
  void handle(Peer from, std::uint64_t owner, GetVariable&& m, std::uint64_t bytes);
  void handle(Peer from, std::uint64_t owner, SetVariable&& m, std::uint64_t bytes);
  void handle(Peer from, std::uint64_t owner, ClearContainer&& m, std::uint64_t bytes);
  /// Drops, later, the states of owners that are neither connected nor alive.
  void drop_of_lost_owners();

  // ---- elsewhere, of this node's programs

  /// As Peers::get and set.
  Tensor get(const std::string& node, const StateSpec& variable);
  void set(const std::string& node, const StateSpec& variable, Tensor value);
  /// As ClusterNode::clear_container.
  Cleared clear_container(const std::string& container, std::vector<std::string> nodes);
  /// Compares the states that a plan of this node was made with to those before; `states`: numbers,
  /// by the plan's nodes. Throws failed_precondition if a variable was lost.
  void note(const Plan& plan, const std::vector<std::uint64_t>& states);
  /// The caller will set these variables: values of theirs that were lost are not missed.
  void forget(const std::set<std::string>& variables);

 private:
  std::uint64_t clear_here(std::uint64_t owner, const std::string& container);
  std::vector<std::uint64_t> ask_to_clear(const std::string& container,
                                          const std::vector<Peer>& peers);
  template <class M>
  RequestTable::Reply ask(const std::string& node, M message);

  const NodeParts node_;
  DistributedRuns& runs_;
  const BreakPlans break_plans_;

  std::mutex mutex_;  // guards seen_
  // by node and variable: the number of the states in which it had a value
  std::map<std::pair<std::string, std::string>, std::uint64_t> seen_;
};

}  // namespace troupe
