// Variables, as an engine's callers see them: by name, wherever they live; and what programs of
// other nodes keep here.
#include <troupe/actors/engine/engine_impl.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace troupe {

namespace {

VariableState& variable_of(StateStore& states, const std::string& name, Ref<State>& keep) {
  keep = states.find(name);
  auto* v = dynamic_cast<VariableState*>(keep.get());
  if (!v) throw Error(Code::not_found, fmt::format("the engine has no variable '{}'", name));
  return *v;
}

Tensor value_of(StateStore& states, const std::string& variable) {
  Ref<State> keep;
  Tensor value = variable_of(states, variable, keep).snapshot();
  if (value.is_on_host()) return value;
  Device& device = *value.device();
  Tensor host = Tensor::empty(value.dtype(), value.shape().is_scalar() ? Shape{1} : value.shape());
  auto stream = device.compute_stream();
  device.copy_to_host(*stream, value, View(host));
  stream->synchronize();
  return host.reshaped(value.shape());
}

void replace(StateStore& states, const std::string& variable, Tensor value) {
  Ref<State> keep;
  VariableState& v = variable_of(states, variable, keep);
  try {
    v.replace(std::move(value));
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("variable '{}': {}", variable, e.what()));
  }
}

}  // namespace

// ---- this engine's

Tensor EngineImpl::get(const std::string& variable) {
  StateSpec home;
  if (is_elsewhere(variable, home)) return peers_->get(std::string(node_of(home.device)), home);
  return value_of(states_, variable);
}

void EngineImpl::set(const std::string& variable, Tensor value) {
  StateSpec home;
  if (is_elsewhere(variable, home))
    return peers_->set(std::string(node_of(home.device)), home, std::move(value));
  replace(states_, variable, std::move(value));
}

Tensor EngineImpl::get(const StateSpec& spec) {
  const StateSpec at = declared(spec, false);
  return is_elsewhere(at) ? peers_->get(std::string(node_of(at.device)), at) : get_in(states_, at);
}

void EngineImpl::set(const StateSpec& spec, Tensor value) {
  const StateSpec at = declared(spec, true);
  if (is_elsewhere(at)) peers_->set(std::string(node_of(at.device)), at, std::move(value));
  else set_in(states_, at, std::move(value));
}

Tensor EngineImpl::get_in(StateStore& states, const StateSpec& spec) {
  states.get(spec);
  return value_of(states, spec.name);
}

void EngineImpl::set_in(StateStore& states, const StateSpec& spec, Tensor value) {
  states.get(spec);
  replace(states, spec.name, std::move(value));
}

// Who asks for a variable by its name alone means the one that plans have used, if there is one
// only.
void EngineImpl::remember_homes(const Graph& graph) {
  std::lock_guard lock(mutex_);
  std::vector<bool> is_used(graph.states().size());
  for (const Node& n : graph.nodes())
    if (n.state >= 0) is_used[static_cast<std::size_t>(n.state)] = true;
  for (std::size_t i = 0; i < is_used.size(); ++i) {
    const StateSpec& spec = graph.states()[i];
    if (spec.kind != StateSpec::Kind::variable || !is_used[i]) continue;
    settled_.insert_or_assign(spec.name, spec.device);
    homes_[spec.name].insert_or_assign(std::string(node_of(spec.device)), spec);
  }
}

// With the device where it lives. `is_given`: it gets a value, so that none is lost.
StateSpec EngineImpl::declared(StateSpec spec, bool is_given) {
  if (!peers_) return spec;
  const PlacementOptions options = placement_options();
  if (!is_given) check_not_lost(spec, options);
  spec.device = home_of(spec, options);
  std::lock_guard lock(mutex_);
  settled_.insert_or_assign(spec.name, spec.device);
  homes_[spec.name].insert_or_assign(std::string(node_of(spec.device)), spec);
  return spec;
}

bool EngineImpl::is_elsewhere(const std::string& variable, StateSpec& home) {
  if (!peers_) return false;
  const std::vector<NodeLabels> there = peers_->nodes_with_labels();
  const bool is_here = static_cast<bool>(states_.find(variable));
  std::lock_guard lock(mutex_);
  const auto found = homes_.find(variable);
  if (found == homes_.end()) return false;
  auto& homes = found->second;
  if (is_here) homes.try_emplace(peers_->name());
  // Of several the one counts whose node is still there.
  if (homes.size() > 1)
    std::erase_if(homes, [&](const auto& h) {
      return std::none_of(there.begin(), there.end(),
                          [&](const NodeLabels& n) { return n.name == h.first; });
    });
  if (homes.size() > 1) {
    std::vector<std::string> nodes;
    for (const auto& [node, spec] : homes) nodes.push_back(node);
    throw Error(Code::failed_precondition,
                fmt::format("there is a variable '{}' on each of the nodes {}: ask for it by its "
                            "Variable, not by its name",
                            variable, fmt::join(nodes, ", ")));
  }
  if (homes.empty() || homes.begin()->first == peers_->name()) return false;
  home = homes.begin()->second;
  return true;
}

std::vector<std::string> EngineImpl::variables() {
  std::vector<std::string> names = states_.names(StateSpec::Kind::variable);
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, homes] : homes_) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

// ---- those of other nodes' programs

EngineImpl::OthersStates EngineImpl::states_of(const StateOwner& who) {
  std::lock_guard lock(mutex_);
  OthersStates& found = others_states_[who];
  if (!found.store) {
    found = {std::make_shared<StateStore>(this), ++stores_};
    found.store->print_to(options_.print);
  }
  return found;
}

std::vector<std::shared_ptr<StateStore>> EngineImpl::all_states() {
  std::vector<std::shared_ptr<StateStore>> all{own_states()};
  std::lock_guard lock(mutex_);
  for (const auto& [who, states] : others_states_) all.push_back(states.store);
  for (const auto& weak : left_states_)
    if (auto states = weak.lock()) all.push_back(std::move(states));
  return all;
}

bool EngineImpl::has_others_states() {
  std::lock_guard lock(mutex_);
  return !others_states_.empty();
}

bool EngineImpl::has_states_of(const StateOwner& who) {
  std::lock_guard lock(mutex_);
  return others_states_.contains(who);
}

std::size_t EngineImpl::drop_states(const std::function<bool(const StateOwner&)>& is_gone) {
  std::vector<OthersStates> dropped;  // outside the lock
  std::size_t states = 0;
  std::lock_guard lock(mutex_);
  std::erase_if(left_states_, [](const auto& weak) { return weak.expired(); });
  for (auto it = others_states_.begin(); it != others_states_.end();) {
    if (!is_gone(it->first)) {
      ++it;
      continue;
    }
    states += it->second.store->specs().size();
    left_states_.push_back(it->second.store);
    dropped.push_back(std::move(it->second));
    it = others_states_.erase(it);
  }
  return states;
}

}  // namespace troupe
