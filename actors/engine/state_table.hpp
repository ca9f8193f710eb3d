// The states of an engine: its own store, the stores of other nodes' programs, and the homes of
// states that its plans have used.
//
//   StateTable states(host);
//   states.own().get(spec);
//   states.of({.container = "shared"}).store->get(spec);
//
// Threads: any. Ownership: the table owns its own store and shares the others with the plans that
// were made with them; a dropped store lives as long as such a plan.
// Invariants: 1. an owner has one store at a time; 2. `all` includes dropped stores while they
// live, so that a failed run's waiters are cancelled there too.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <troupe/actors/executor/remote_plan.hpp>
#include <troupe/ops/graph/graph.hpp>
#include <troupe/ops/graph/state.hpp>

namespace troupe {

class StateTable {
 public:
  /// A store of another node's program; `number` counts the stores made so far, from 1.
  struct Others {
    std::shared_ptr<StateStore> store;
    std::uint64_t number = 0;
  };

  explicit StateTable(ActorHost* host) : host_(host), own_(host) {}

  StateStore& own() { return own_; }
  const StateStore& own() const { return own_; }
  /// Sets where consoles of all stores print; before the first use.
  void print_to(PrintLine print);

  // ---- stores of other nodes' programs

  /// Returns the owner's store, made on first use.
  Others of(const StateOwner& owner);
  bool has_others();
  bool has(const StateOwner& owner);
  /// Drops the stores of owners that `is_gone` accepts; returns how many states they held. Plans
  /// that were made with a store keep it.
  std::size_t drop(const std::function<bool(const StateOwner&)>& is_gone);
  /// Returns all stores, its own first; the caller must not outlive the table.
  std::vector<std::shared_ptr<StateStore>> all();

  // ---- homes of states, on any node

  /// Records the device of a state that a plan or a caller has used.
  void settle(const StateSpec& spec);
  /// Returns the devices of all recorded states, by name.
  std::map<std::string, std::string> homes();
  /// Finds the node of a variable that is named without its graph. Returns true, and its spec, if
  /// that is another node than `here`. Throws failed_precondition if several of the present nodes,
  /// `there`, have one.
  bool find_elsewhere(const std::string& variable, const std::string& here,
                      const std::vector<NodeLabels>& there, StateSpec& home);
  /// Returns the names of variables, here and elsewhere, in order.
  std::vector<std::string> variables();

 private:
  ActorHost* const host_;
  StateStore own_;   // has a lock of its own
  PrintLine print_;  // set before the first use
  // Guards everything below. A store's own lock may be taken under it.
  std::mutex mutex_;
  std::map<StateOwner, Others> others_;
  std::uint64_t stores_ = 0;                        // made so far for others
  std::vector<std::weak_ptr<StateStore>> dropped_;  // runs that are still to end may wait in them
  std::map<std::string, std::string> homes_;        // devices of states, by their names
  // variables by name, then by node
  std::map<std::string, std::map<std::string, StateSpec>> variables_;
};

/// Returns the value of a store's variable, on the host. Throws not_found.
Tensor variable_value(StateStore& states, const std::string& variable);
/// Replaces the value of a store's variable. Throws not_found, and invalid_argument if dtype or
/// shape differ.
void replace_variable(StateStore& states, const std::string& variable, Tensor value);

}  // namespace troupe
