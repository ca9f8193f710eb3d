// States of programs on other nodes than theirs: whose they are, when they go, and that nobody goes
// on with one that was lost as if it were the one before.
#include <troupe/cluster/node/node_core.hpp>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <troupe/ops/graph/nearest.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe {

// ---- here, for others

// A number that no earlier life of these states had, here or in an earlier life of this node.
EngineImpl::OthersStates NodeCore::states_for(std::uint64_t owner, const std::string& container) {
  const bool is_own = !container.empty() && container == container_;
  EngineImpl::OthersStates found =
      is_own ? EngineImpl::OthersStates{engine_->own_states(), 0}
             : engine_->states_of({container, container.empty() ? owner : 0});
  found.number += self_.incarnation * 0x9e3779b97f4a7c15ull;
  return found;
}

void NodeCore::handle(Peer from, std::uint64_t owner, GetVariable&& m, std::uint64_t bytes) {
  do_for(from, bytes, [this, owner, m = std::move(m)] {
    Answer a{m.request, {}, {}};
    try {
      const EngineImpl::OthersStates states = states_for(owner, m.container);
      a.states = states.number;
      a.value = EngineImpl::get_in(*states.store, m.variable);
    } catch (...) { a.status = Status::from_current_exception(); }
    return a;
  });
}

void NodeCore::handle(Peer from, std::uint64_t owner, SetVariable&& m, std::uint64_t bytes) {
  do_for(from, bytes, [this, owner, m = std::move(m)] {
    Answer a{m.request, {}, {}};
    try {
      const EngineImpl::OthersStates states = states_for(owner, m.container);
      a.states = states.number;
      EngineImpl::set_in(*states.store, m.variable, m.value);
    } catch (...) { a.status = Status::from_current_exception(); }
    return a;
  });
}

void NodeCore::handle(Peer from, std::uint64_t owner, ClearContainer&& m, std::uint64_t bytes) {
  do_for(from, bytes, [this, owner, m = std::move(m)] {
    Answer a{m.request, {}, {}};
    a.states = clear_here(owner, m.container);
    return a;
  });
}

// On the clerk, as plans are made: none is about to be that has the states. Plans that have them
// are no more: who owns one makes it anew, and so gets others. Runs under way end with what they
// have.
std::uint64_t NodeCore::clear_here(std::uint64_t owner, const std::string& container) {
  const StateOwner who{container, container.empty() ? owner : 0};
  // its engine's own
  if (!container.empty() && container == container_) return ClearContainer::kKept;
  if (!engine_->has_states_of(who)) return 0;
  const std::shared_ptr<StateStore> store = engine_->states_of(who).store;
  std::vector<std::shared_ptr<Compiled>> plans;  // dropped outside the lock
  {
    std::lock_guard lock(mutex_);
    for (auto it = plans_.begin(); it != plans_.end();) {
      if (it->second->states != store) {
        ++it;
        continue;
      }
      plans.push_back(std::move(it->second));
      it = plans_.erase(it);
    }
  }
  for (const auto& plan : plans) {
    const auto& shared = static_cast<const SharedPlan&>(*plan->troupe.remote);
    send(shared.owner(), PlanBroken{shared.number()});
  }
  return engine_->drop_states([&](const StateOwner& o) { return o == who; });
}

// Behind the plans that were asked for before: who makes one sees whether its owner is still there.
void NodeCore::drop_states() {
  if (!engine_->has_others_states()) return;
  do_later([this] {
    std::set<std::uint64_t> there;
    {
      std::lock_guard lock(mutex_);
      for (const auto& [peer, node] : roster_.sessions()) there.insert(node.incarnation);
      for (const Member& m : roster_.members())
        if (m.is_up()) there.insert(m.incarnation);
    }
    engine_->drop_states(
        [&](const StateOwner& who) { return who.container.empty() && !there.contains(who.owner); });
  });
}

// ---- elsewhere, of this node's programs

namespace {

[[noreturn]] void refuse_lost(const std::string& variable, const std::string& node,
                              const std::string& who) {
  throw Error(Code::failed_precondition,
              fmt::format("{}the value of variable '{}' is lost: node '{}' has started again, or "
                          "held this one for dead, or its container was cleared, since it had "
                          "one; give it one by Engine::set or from a checkpoint, or its initial "
                          "value by Engine::initialize",
                          who, variable, node));
}

}  // namespace

void NodeCore::note_states(const Plan& plan, const std::vector<std::uint64_t>& states) {
  const Graph& graph = plan.program.graph;
  std::lock_guard lock(mutex_);
  for (std::int32_t id = 0; id < graph.size(); ++id) {
    const std::int32_t state = graph.node(id).state;
    if (state < 0) continue;
    const StateSpec& spec = graph.states()[static_cast<std::size_t>(state)];
    // what is done to a state is done where that lives
    const std::int32_t there = plan.partitions[at(plan.partition_of[at(id)])].node;
    if (spec.kind != StateSpec::Kind::variable || there == plan.here) continue;
    const std::string& node = plan.nodes[at(there)];
    if (seen_states_.try_emplace({node, spec.name}, states[at(there)]).first->second !=
        states[at(there)])
      refuse_lost(spec.name, node, graph.describe(id) + ": ");
  }
}

Tensor NodeCore::get(const std::string& node, const StateSpec& variable) {
  const Peer to = peer_of(node);
  const std::uint64_t id = request(to);
  ask(id, GetVariable::kLane, written(GetVariable{id, variable, container_}).take());
  Request answer = answer_to(id);
  if (!answer.status.ok())
    throw Error(answer.status.code(), fmt::format("node '{}': {}", node, answer.status.message()));
  std::lock_guard lock(mutex_);
  if (seen_states_.try_emplace({node, variable.name}, answer.states).first->second != answer.states)
    refuse_lost(variable.name, node, {});
  return std::move(answer.value);
}

void NodeCore::set(const std::string& node, const StateSpec& variable, Tensor value) {
  const Peer to = peer_of(node);
  const std::uint64_t id = request(to);
  ask(id, SetVariable::kLane,
      written(SetVariable{id, variable, std::move(value), container_}).take());
  const Request answer = answer_to(id);
  if (!answer.status.ok())
    throw Error(answer.status.code(), fmt::format("node '{}': {}", node, answer.status.message()));
  std::lock_guard lock(mutex_);
  seen_states_.insert_or_assign({node, variable.name}, answer.states);
}

Cleared NodeCore::clear_container(const std::string& container, std::vector<std::string> nodes) {
  if (nodes.empty()) nodes = this->nodes();
  std::vector<Peer> peers;  // 0: this node
  for (const std::string& node : nodes) peers.push_back(node == self_.name ? 0 : peer_of(node));
  std::vector<std::uint64_t> requests;
  for (const Peer peer : peers) {
    if (peer != 0) {
      requests.push_back(request(peer));
      ask(requests.back(), ClearContainer::kLane,
          written(ClearContainer{requests.back(), container}).take());
      continue;
    }
    {
      std::lock_guard lock(mutex_);
      requests.push_back(++last_request_);
      requests_.emplace(requests.back(), Request{});
    }
    handle(0, self_.incarnation, ClearContainer{requests.back(), container}, 0);
  }
  Cleared done;
  Status first;
  std::vector<Peer> cleared;
  std::set<std::string> cleared_nodes;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Request answer = answer_to(requests[i]);
    if (first.ok() && !answer.status.ok())
      first = Status(answer.status.code(),
                     fmt::format("node '{}': {}", nodes[i], answer.status.message()));
    if (!answer.status.ok()) continue;
    if (answer.states == ClearContainer::kKept) {
      done.kept.push_back(nodes[i]);
      continue;
    }
    done.states += answer.states;
    cleared.push_back(peers[i]);
    cleared_nodes.insert(nodes[i]);
  }
  // Its plans may not have heard yet that they are no more, and what they find anew is what was
  // asked for. Where nothing was cleared, values that are lost later are missed as before.
  if (container == container_) {
    runs_.break_off(cleared);
    std::lock_guard lock(mutex_);
    std::erase_if(seen_states_,
                  [&](const auto& seen) { return cleared_nodes.contains(seen.first.first); });
  }
  first.throw_if_error();
  return done;
}

// ---- who is asked

Peer NodeCore::peer_of(const std::string& node, const Plan* plan) const {
  std::lock_guard lock(mutex_);
  roster_.status().throw_if_error();
  if (const Peer peer = roster_.find(node)) return peer;
  std::string who;
  for (std::size_t id = 0; plan && id < plan->partition_of.size() && who.empty(); ++id)
    if (node_of(plan->partitions[static_cast<std::size_t>(plan->partition_of[id])].name) == node)
      who = plan->program.graph.describe(static_cast<std::int32_t>(id)) + ": ";
  const Member* m = roster_.member(node);
  const std::vector<std::string> names = roster_.names();
  throw Error(
      Code::not_found,
      fmt::format(
          "{}there is no node '{}' in this cluster{}; there are {}{}", who, node,
          m && !m->is_up()
              ? fmt::format(": it {}", m->state == MemberState::left ? "has left" : "is dead")
              : "",
          fmt::join(names, ", "), m ? "" : did_you_mean(node, {names.begin(), names.end()})));
}

}  // namespace troupe
