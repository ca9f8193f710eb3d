#include <troupe/actors/engine/state_table.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/devices/base/device_name.hpp>
#include <troupe/ops/graph/suggest_name.hpp>

namespace troupe {

void StateTable::print_to(PrintLine print) {
  own_.print_to(print);
  print_ = std::move(print);
}

StateTable::Others StateTable::of(const StateOwner& owner) {
  std::lock_guard lock(mutex_);
  Others& found = others_[owner];
  if (!found.store) {
    found = {std::make_shared<StateStore>(host_), ++stores_};
    found.store->print_to(print_);
  }
  return found;
}

bool StateTable::has_others() {
  std::lock_guard lock(mutex_);
  return !others_.empty();
}

bool StateTable::has(const StateOwner& owner) {
  std::lock_guard lock(mutex_);
  return others_.contains(owner);
}

std::size_t StateTable::drop(const std::function<bool(const StateOwner&)>& is_gone) {
  std::vector<Others> gone;  // destroyed outside the lock
  std::size_t states = 0;
  std::lock_guard lock(mutex_);
  std::erase_if(dropped_, [](const auto& weak) { return weak.expired(); });
  for (auto it = others_.begin(); it != others_.end();) {
    if (!is_gone(it->first)) {
      ++it;
      continue;
    }
    states += it->second.store->specs().size();
    dropped_.push_back(it->second.store);
    gone.push_back(std::move(it->second));
    it = others_.erase(it);
  }
  return states;
}

std::vector<std::shared_ptr<StateStore>> StateTable::all() {
  std::vector<std::shared_ptr<StateStore>> all{{std::shared_ptr<StateStore>(), &own_}};
  std::lock_guard lock(mutex_);
  for (const auto& [owner, states] : others_) all.push_back(states.store);
  for (const auto& weak : dropped_)
    if (auto states = weak.lock()) all.push_back(std::move(states));
  return all;
}

void StateTable::settle(const StateSpec& spec) {
  std::lock_guard lock(mutex_);
  homes_.insert_or_assign(spec.name, spec.device);
  variables_[spec.name].insert_or_assign(std::string(node_of(spec.device)), spec);
}

std::map<std::string, std::string> StateTable::homes() {
  std::lock_guard lock(mutex_);
  return homes_;
}

bool StateTable::find_elsewhere(const std::string& variable, const std::string& here,
                                const std::vector<NodeLabels>& there, StateSpec& home) {
  const bool is_here = static_cast<bool>(own_.find(variable));
  std::lock_guard lock(mutex_);
  const auto found = variables_.find(variable);
  if (found == variables_.end()) return false;
  auto& homes = found->second;
  if (is_here) homes.try_emplace(here);
  // If there are several homes, only homes on present nodes count.
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
  if (homes.empty() || homes.begin()->first == here) return false;
  home = homes.begin()->second;
  return true;
}

std::vector<std::string> StateTable::variables() {
  std::vector<std::string> names = own_.names(StateSpec::Kind::variable);
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, homes] : variables_) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

// ---- values

namespace {

VariableState& variable_in(StateStore& states, const std::string& name, Ref<State>& keep) {
  keep = states.find(name);
  auto* v = dynamic_cast<VariableState*>(keep.get());
  if (v) return *v;
  const std::vector<StateSpec> specs = states.specs();
  std::vector<std::string_view> names;
  for (const StateSpec& spec : specs)
    if (spec.kind == StateSpec::Kind::variable) names.push_back(spec.name);
  throw Error(Code::not_found,
              fmt::format("the engine has no variable '{}'{}", name, did_you_mean(name, names)));
}

}  // namespace

Tensor variable_value(StateStore& states, const std::string& variable) {
  Ref<State> keep;
  VariableState& v = variable_in(states, variable, keep);
  Tensor value;
  try {
    value = v.snapshot();
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("variable '{}': {}", variable, e.what()));
  }
  if (value.is_on_host()) return value;
  Device& device = *value.device();
  Tensor host = Tensor::empty(value.dtype(), value.shape().is_scalar() ? Shape{1} : value.shape());
  auto stream = device.compute_stream();
  device.copy_to_host(*stream, value, View(host));
  stream->synchronize();
  return host.reshaped(value.shape());
}

void replace_variable(StateStore& states, const std::string& variable, Tensor value) {
  Ref<State> keep;
  VariableState& v = variable_in(states, variable, keep);
  try {
    v.replace(std::move(value));
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("variable '{}': {}", variable, e.what()));
  }
}

}  // namespace troupe
