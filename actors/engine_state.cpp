// Variables, as an engine's callers see them: by name, wherever they live.
#include <troupe/actors/engine_impl.hpp>

#include <fmt/format.h>

namespace troupe {

namespace {

VariableState& variable_of(StateStore& states, const std::string& name, Ref<State>& keep) {
  keep = states.find(name);
  auto* v = dynamic_cast<VariableState*>(keep.get());
  if (!v) throw Error(Code::not_found, fmt::format("the engine has no variable '{}'", name));
  return *v;
}

}  // namespace

Tensor EngineImpl::get(const std::string& variable) {
  StateSpec home;
  if (is_elsewhere(variable, home)) return peers_->get(std::string(node_of(home.device)), home);
  return value_of(variable);
}

Tensor EngineImpl::value_of(const std::string& variable) {
  Ref<State> keep;
  Tensor value = variable_of(states_, variable, keep).snapshot();
  if (value.is_on_host()) return value;
  Device& device = *value.device();
  Tensor host = Tensor::empty(value.dtype(), value.shape().is_scalar() ? Shape{1} : value.shape());
  auto stream = device.compute_stream();
  device.copy_to_host(*stream, value, View(host));
  stream->synchronize();
  return host.reshaped(value.shape());
}

void EngineImpl::set(const std::string& variable, Tensor value) {
  StateSpec home;
  if (is_elsewhere(variable, home)) return peers_->set(std::string(node_of(home.device)), home, std::move(value));
  Ref<State> keep;
  variable_of(states_, variable, keep).replace(std::move(value));
}

Tensor EngineImpl::get(const StateSpec& spec) {
  declare(spec);
  return get(spec.name);
}

void EngineImpl::set(const StateSpec& spec, Tensor value) {
  declare(spec);
  set(spec.name, std::move(value));
}

Tensor EngineImpl::get_here(const StateSpec& spec) {
  states_.get(spec);
  return value_of(spec.name);
}

void EngineImpl::set_here(const StateSpec& spec, Tensor value) {
  states_.get(spec);
  Ref<State> keep;
  variable_of(states_, spec.name, keep).replace(std::move(value));
}

void EngineImpl::declare(StateSpec spec) {
  if (peers_) {
    spec.device = home_of(spec, placement_options());
    std::lock_guard lock(mutex_);
    settled_.insert_or_assign(spec.name, spec.device);
    if (node_of(spec.device) != peers_->name()) {
      homes_.insert_or_assign(spec.name, std::move(spec));
      return;
    }
    homes_.erase(spec.name);
  }
  states_.get(spec);
}

bool EngineImpl::is_elsewhere(const std::string& variable, StateSpec& home) {
  std::lock_guard lock(mutex_);
  auto it = homes_.find(variable);
  if (it == homes_.end()) return false;
  home = it->second;
  return true;
}

}  // namespace troupe
