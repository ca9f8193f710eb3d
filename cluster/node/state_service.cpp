#include <troupe/cluster/node/state_service.hpp>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <troupe/actors/plan/instances.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe {

// ---- here, for others

EngineImpl::OthersStates StateService::states_for(std::uint64_t owner,
                                                  const std::string& container) {
  const bool is_own = !container.empty() && container == node_.container;
  EngineImpl::OthersStates found =
      is_own ? EngineImpl::OthersStates{node_.engine.own_states(), 0}
             : node_.engine.states_of({container, container.empty() ? owner : 0});
  found.number += node_.self.incarnation * 0x9e3779b97f4a7c15ull;
  return found;
}

void StateService::handle(Peer from, std::uint64_t owner, GetVariable&& m, std::uint64_t bytes) {
  node_.quota.submit(from, bytes, [this, owner, m = std::move(m)] {
    Answer a{m.request, {}, {}};
    try {
      const EngineImpl::OthersStates states = states_for(owner, m.container);
      a.states = states.number;
      a.value = EngineImpl::get_in(*states.store, m.variable);
    } catch (...) { a.status = Status::from_current_exception(); }
    return a;
  });
}

void StateService::handle(Peer from, std::uint64_t owner, SetVariable&& m, std::uint64_t bytes) {
  node_.quota.submit(from, bytes, [this, owner, m = std::move(m)] {
    Answer a{m.request, {}, {}};
    try {
      const EngineImpl::OthersStates states = states_for(owner, m.container);
      a.states = states.number;
      EngineImpl::set_in(*states.store, m.variable, m.value);
    } catch (...) { a.status = Status::from_current_exception(); }
    return a;
  });
}

void StateService::handle(Peer from, std::uint64_t owner, ClearContainer&& m, std::uint64_t bytes) {
  node_.quota.submit(from, bytes, [this, owner, m = std::move(m)] {
    Answer a{m.request, {}, {}};
    a.states = clear_here(owner, m.container);
    return a;
  });
}

// Returns the number of dropped states, or ClearContainer::kKept. Runs on the request worker, as
// plans are made: no plan is about to be made that has the states. Plans that have them end; their
// owners make them anew, with other states. Runs under way end with the states that they have.
std::uint64_t StateService::clear_here(std::uint64_t owner, const std::string& container) {
  const StateOwner cleared{container, container.empty() ? owner : 0};
  // its engine's own
  if (!container.empty() && container == node_.container) return ClearContainer::kKept;
  if (!node_.engine.has_states_of(cleared)) return 0;
  break_plans_(node_.engine.states_of(cleared).store);
  return node_.engine.drop_states([&](const StateOwner& o) { return o == cleared; });
}

// Behind the plans that were asked for before, each of which looks whether its owner is there.
void StateService::drop_of_lost_owners() {
  if (!node_.engine.has_others_states()) return;
  node_.quota.run_later([this] {
    const auto there = node_.view.look([](const Roster& roster, ObservedMembers&) {
      std::set<std::uint64_t> all;
      for (const auto& [peer, node] : roster.sessions()) all.insert(node.incarnation);
      for (const Member& m : roster.members())
        if (m.is_up()) all.insert(m.incarnation);
      return all;
    });
    node_.engine.drop_states([&](const StateOwner& states) {
      return states.container.empty() && !there.contains(states.owner);
    });
  });
}

// ---- elsewhere, of this node's programs

namespace {

[[noreturn]] void refuse_lost(const std::string& variable, const std::string& node,
                              const std::string& user) {
  throw Error(Code::failed_precondition,
              fmt::format("{}the value of variable '{}' is lost: node '{}' has started again, or "
                          "held this one for dead, or its container was cleared, since it had "
                          "one; give it one by Engine::set or from a checkpoint, or its initial "
                          "value by Engine::initialize",
                          user, variable, node));
}

}  // namespace

void StateService::note(const Plan& plan, const std::vector<std::uint64_t>& states) {
  std::lock_guard lock(mutex_);
  // operations on a state run on the node where it lives
  each_state(plan, [&](std::int32_t id, std::int32_t there, const StateSpec& spec) {
    if (spec.kind != StateSpec::Kind::variable || there == plan.here) return;
    const std::string& node = plan.nodes[at(there)];
    if (seen_.try_emplace({node, spec.name}, states[at(there)]).first->second != states[at(there)])
      refuse_lost(spec.name, node, plan.program.graph.describe(id) + ": ");
  });
}

void StateService::forget(const std::set<std::string>& variables) {
  std::lock_guard lock(mutex_);
  std::erase_if(seen_, [&](const auto& seen) { return variables.contains(seen.first.second); });
}

template <class M>
RequestTable::Reply StateService::ask(const std::string& node, M m) {
  const Peer to = node_.view.peer_of(node);
  m.request = node_.requests.add(to);
  Message message = written(m);
  const std::uint64_t bytes = bytes_of(message);
  node_.requests.ask(m.request, bytes,
                     [&] { node_.transport.send(to, M::kLane, std::move(message)); });
  RequestTable::Reply reply = node_.requests.await(m.request);
  if (!reply.status.ok())
    throw Error(reply.status.code(), fmt::format("node '{}': {}", node, reply.status.message()));
  return reply;
}

Tensor StateService::get(const std::string& node, const StateSpec& variable) {
  RequestTable::Reply reply = ask(node, GetVariable{0, variable, node_.container});
  std::lock_guard lock(mutex_);
  if (seen_.try_emplace({node, variable.name}, reply.states).first->second != reply.states)
    refuse_lost(variable.name, node, {});
  return std::move(reply.value);
}

void StateService::set(const std::string& node, const StateSpec& variable, Tensor value) {
  const RequestTable::Reply reply =
      ask(node, SetVariable{0, variable, std::move(value), node_.container});
  std::lock_guard lock(mutex_);
  seen_.insert_or_assign({node, variable.name}, reply.states);
}

// `peers`: 0 is this node. Returns the requests.
std::vector<std::uint64_t> StateService::ask_to_clear(const std::string& container,
                                                      const std::vector<Peer>& peers) {
  std::vector<std::uint64_t> ids;
  for (const Peer peer : peers) {
    ids.push_back(peer != 0 ? node_.requests.add(peer) : node_.requests.add_here());
    ClearContainer m{ids.back(), container};
    if (peer == 0) {
      handle(0, node_.self.incarnation, std::move(m), 0);
      continue;
    }
    Message message = written(m);
    const std::uint64_t bytes = bytes_of(message);
    node_.requests.ask(m.request, bytes, [&] {
      node_.transport.send(peer, ClearContainer::kLane, std::move(message));
    });
  }
  return ids;
}

Cleared StateService::clear_container(const std::string& container,
                                      std::vector<std::string> nodes) {
  if (nodes.empty()) nodes = node_.view.names();
  std::vector<Peer> peers;
  for (const std::string& node : nodes)
    peers.push_back(node == node_.self.name ? 0 : node_.view.peer_of(node));
  const std::vector<std::uint64_t> ids = ask_to_clear(container, peers);
  Cleared done;
  Status first;
  std::vector<Peer> cleared;
  std::set<std::string> cleared_nodes;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const RequestTable::Reply reply = node_.requests.await(ids[i]);
    if (first.ok() && !reply.status.ok())
      first = Status(reply.status.code(),
                     fmt::format("node '{}': {}", nodes[i], reply.status.message()));
    if (!reply.status.ok()) continue;
    if (reply.states == ClearContainer::kKept) {
      done.kept.push_back(nodes[i]);
      continue;
    }
    done.states += reply.states;
    cleared.push_back(peers[i]);
    cleared_nodes.insert(nodes[i]);
  }
  // This node's plans may not know yet that they are broken, and the states that they find anew are
  // those that were asked for. Values that were not cleared here are missed if they are lost later.
  if (container == node_.container) {
    runs_.break_off(cleared);
    std::lock_guard lock(mutex_);
    std::erase_if(seen_,
                  [&](const auto& seen) { return cleared_nodes.contains(seen.first.first); });
  }
  first.throw_if_error();
  return done;
}

}  // namespace troupe
