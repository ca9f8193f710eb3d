// Variables, as an engine's callers see them: by name, on whichever node they live.
#include <troupe/actors/engine/engine_impl.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace troupe::detail {

Tensor EngineImpl::get(const std::string& variable) {
  if (const auto laid = laid_.find(variable)) return get(laid->whole);
  cut_variables({variable});
  StateSpec home;
  if (is_elsewhere(variable, home)) return peers_->get(std::string(node_of(home.device)), home);
  return variable_value(states_.own(), variable);
}

void EngineImpl::set(const std::string& variable, Tensor value) {
  initials_.forget(variable);
  if (const auto laid = laid_.find(variable)) return set(laid->whole, std::move(value));
  cut_variables({variable});
  StateSpec home;
  if (is_elsewhere(variable, home)) peers_->set(std::string(node_of(home.device)), home, value);
  else replace_variable(states_.own(), variable, value);
  if (is_laid_out_now(variable)) set(variable, std::move(value));
}

Tensor EngineImpl::get(const StateSpec& spec) {
  if (const auto laid = laid_.find(spec)) {
    if (Tensor value = laid_.uncut(spec.name); value.has_value()) return value;
    return mesh::detail::joined(*laid, [&](const StateSpec& piece) { return get(piece); });
  }
  if (!is_used(spec)) laid_.note_callers(spec.name);
  const StateSpec at = declared(spec, false);
  return is_elsewhere(at) ? peers_->get(std::string(node_of(at.device)), at)
                          : get_in(states_.own(), at);
}

void EngineImpl::set(const StateSpec& spec, Tensor value) {
  initials_.forget(spec.name);
  if (const auto laid = laid_.find(spec)) {
    const ValueSpec& whole = laid->whole.values[0];
    if (!value.has_value() || value.dtype() != whole.dtype || value.shape() != whole.shape)
      throw Error(
          Code::invalid_argument,
          fmt::format(
              "variable '{}': it holds {}, and cannot be set to {}", spec.name, whole.text(),
              value.has_value() ? fmt::format("{}{}", name_of(value.dtype()), value.shape().text())
                                : "nothing"));
    if (laid_.uncut(spec.name).has_value()) {
      std::lock_guard lock(laying_mutex_);  // nothing cuts it meanwhile
      if (laid_.replace_uncut(spec.name, value)) return;
    }
    for (const auto& piece : laid->pieces) set(piece.spec, mesh::detail::cut(value, piece));
    return;
  }
  if (!is_used(spec)) laid_.note_callers(spec.name);
  const StateSpec at = declared(spec, true);
  if (is_elsewhere(at)) peers_->set(std::string(node_of(at.device)), at, value);
  else set_in(states_.own(), at, value);
  if (is_laid_out_now(spec.name)) set(spec, std::move(value));
}

// True if a program has begun to store the variable in pieces while a caller set the whole one: the
// pieces may have the value of before. Waits until they have one.
bool EngineImpl::is_laid_out_now(const std::string& variable) {
  if (!laid_.is_begun(variable)) return false;
  std::lock_guard lock(laying_mutex_);
  return laid_.find(variable) != nullptr;
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

bool EngineImpl::is_used(const StateSpec& spec) {
  return states_.own().find(spec.name) || states_.homes().contains(spec.name);
}

bool EngineImpl::store_in_pieces(const mesh::detail::VariableHomes& homes) {
  for (const auto& laid : homes.made) {
    const StateSpec& whole = laid->whole;
    if (!laid_.begin(laid)) return false;
    try {
      // A value that a caller gave, else the initial one. It stays whole until it is needed in
      // pieces.
      const bool is_given = is_used(whole);
      laid_.add(laid, is_given ? get(whole)
                               : whole.initial.make(whole.name, whole.values[0].dtype,
                                                    whole.values[0].shape, options_.seed));
    } catch (...) {
      laid_.abandon(laid);
      throw;
    }
  }
  return true;
}

void EngineImpl::cut_variables(const std::vector<std::string>& pieces) {
  if (laid_.uncut_among(pieces).empty()) return;
  std::lock_guard lock(laying_mutex_);
  for (const auto& laid : laid_.uncut_among(pieces)) {
    const Tensor value = laid_.uncut(laid->whole.name);
    for (const auto& piece : laid->pieces) set(piece.spec, mesh::detail::cut(value, piece));
    laid_.note_cut(laid->whole.name);
  }
}

void EngineImpl::cut_variables_of(const Graph& program) {
  std::vector<std::string> names;
  for (std::int32_t state : mesh::detail::states_used_by(program))
    names.push_back(program.states()[static_cast<std::size_t>(state)].name);
  cut_variables(names);
}

bool EngineImpl::is_elsewhere(const std::string& variable, StateSpec& home) {
  return peers_ &&
         states_.find_elsewhere(variable, peers_->name(), peers_->nodes_with_labels(), home);
}

}  // namespace troupe::detail
