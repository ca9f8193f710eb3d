// Variables, as an engine's callers see them: by name, on whichever node they live.
#include <troupe/actors/engine/engine_impl.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace troupe::detail {

Tensor EngineImpl::get(const std::string& variable) {
  StateSpec home;
  if (is_elsewhere(variable, home)) return peers_->get(std::string(node_of(home.device)), home);
  return variable_value(states_.own(), variable);
}

void EngineImpl::set(const std::string& variable, Tensor value) {
  StateSpec home;
  if (is_elsewhere(variable, home))
    return peers_->set(std::string(node_of(home.device)), home, std::move(value));
  replace_variable(states_.own(), variable, std::move(value));
}

Tensor EngineImpl::get(const StateSpec& spec) {
  const StateSpec at = declared(spec, false);
  return is_elsewhere(at) ? peers_->get(std::string(node_of(at.device)), at)
                          : get_in(states_.own(), at);
}

void EngineImpl::set(const StateSpec& spec, Tensor value) {
  const StateSpec at = declared(spec, true);
  if (is_elsewhere(at)) peers_->set(std::string(node_of(at.device)), at, std::move(value));
  else set_in(states_.own(), at, std::move(value));
}

Tensor EngineImpl::get_in(StateStore& states, const StateSpec& spec) {
  states.get(spec);
  return variable_value(states, spec.name);
}

void EngineImpl::set_in(StateStore& states, const StateSpec& spec, Tensor value) {
  states.get(spec);
  replace_variable(states, spec.name, std::move(value));
}

// Returns the spec with the device where the state lives. `is_given`: the state gets a value, so
// that none is lost.
StateSpec EngineImpl::declared(StateSpec spec, bool is_given) {
  if (!spec.initial.seed) spec.initial.seed = options_.seed;
  if (!peers_) return spec;
  const PlacementOptions options = placement_options();
  if (!is_given) check_not_lost(spec, options);
  spec.device = home_of(spec, options);
  states_.settle(spec);
  return spec;
}

bool EngineImpl::is_elsewhere(const std::string& variable, StateSpec& home) {
  return peers_ &&
         states_.find_elsewhere(variable, peers_->name(), peers_->nodes_with_labels(), home);
}

}  // namespace troupe::detail
