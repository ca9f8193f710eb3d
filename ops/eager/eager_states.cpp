// States of eager scopes: how they are declared, found and refused.
#include <troupe/ops/eager/eager.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/no_value.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/tracing.hpp>
#include <troupe/ops/graph/variable.hpp>

namespace troupe {

// A program finds states by name: in another host's it would begin anew under the name.
void Eager::require_own(const Tracing& trace, const StateSpec& spec, const Site& site) const {
  if (!trace.scope() || shares_states(*trace.scope()) || spec.is_of_host()) return;
  throw Error(Code::failed_precondition,
              fmt::format("{} is used at {} in {}, which runs in an eager scope of another engine; "
                          "call the function with values of the scope that has '{}'",
                          spec.text(), site_for(site).text(), trace.name(), spec.name));
}

namespace {

// Null if the state is no variable of this process.
Ref<State> variable_here(const StateStore& store, const std::string& name, VariableState*& v) {
  Ref<State> state = store.find(name);
  v = dynamic_cast<VariableState*>(state.get());
  return state;
}

}  // namespace

// Other scopes are refused by the variable itself; this one knows why.
void Eager::refuse_reads(const std::string& variable, std::string why) {
  VariableState* here = nullptr;
  const Ref<State> kept = variable_here(*store_, variable, here);
  if (here) drop_value(*here);
  without_value_[variable] = std::move(why);
}

void Eager::require_value(const OpDef& op, int state, const Site& site) {
  const auto it = without_value_.find(states_[static_cast<std::size_t>(state)].name);
  if (it == without_value_.end()) return;
  VariableState* here = nullptr;
  const Ref<State> kept = variable_here(*store_, it->first, here);
  // another scope may have assigned one
  if (op.name == "AssignVariable" || (here && has_value(*here))) {
    without_value_.erase(it);
    return;
  }
  throw Error(Code::failed_precondition,
              fmt::format("variable '{}' is used at {} and has no value: {}; assign one first",
                          it->first, site_for(site).text(), it->second));
}

Tensor Eager::get(const Graph& graph, const std::string& variable) {
  for (const StateSpec& spec : graph.states())
    if (spec.kind == StateSpec::Kind::variable && spec.name == variable)
      return place_of(spec) ? on_host(Variable(this, declare(spec, Site())).read())
                            : on_host(static_cast<VariableState&>(*store_->get(spec)).snapshot());
  throw Error(Code::not_found, fmt::format("the graph has no variable '{}'", variable));
}

Eager::Resolved Eager::resolve(const StateSpec& spec) {
  const auto known = resolved_.find(spec.name);
  if (known != resolved_.end()) return known->second;
  // without a line: the scope's own code has not declared it, and still may
  StateSpec mine = spec;
  mine.site = Site();
  const Resolved made{declare(mine, Site()), state_of(spec).get()};
  resolved_.emplace(spec.name, made);
  return made;
}

Variable Eager::find_variable(const std::string& name, At at) {
  const std::string full = name.substr(name.starts_with('/') ? 1 : 0);
  const auto is_it = [&](const StateSpec& spec) { return spec.name == full; };
  if (std::any_of(states_.begin(), states_.end(), is_it)) return Reader::find_variable(name, at);
  // other scopes and programs of the host may have declared it
  const std::vector<StateSpec> all = store_->specs();
  const auto found = std::find_if(all.begin(), all.end(), is_it);
  if (found != all.end() && found->kind == StateSpec::Kind::variable)
    return Variable(this, resolve(*found).number);
  Graph known;  // for an error that names similar ones
  for (const StateSpec& spec : all) known.declare(spec, Site());
  for (const StateSpec& spec : states_) known.declare(spec, Site());
  return known.find_variable(name, at);
}

int Eager::declare(const StateSpec& spec, const Site&) {
  state_of(spec);
  for (std::size_t i = 0; i < states_.size(); ++i)
    if (states_[i].name == spec.name) return static_cast<int>(i);
  states_.push_back(spec);
  return static_cast<int>(states_.size()) - 1;
}

// A loop's body runs here once an iteration: a line may repeat its declaration, another may not.
int Eager::declare_new(StateSpec spec, const Site& at) {
  const Site site = site_for(at);
  spec.site = site;
  // A traced function may make an actor of its code in each trace, but state only once.
  if (Tracing* const trace = Tracing::active();
      trace && spec.kind != StateSpec::Kind::actor && spec.kind != StateSpec::Kind::console) {
    require_own(*trace, spec, site);
    trace->callbacks().declared(spec, site);
    // as without a trace, a state of a device scope of another node lives there
    if (!trace->devices().empty() && spec.device.empty()) {
      StateSpec there = spec;
      there.device = trace->devices().back();
      if (place_of(there)) spec.device = there.device;
    }
  }
  if (spec.kind != StateSpec::Kind::console && spec.name.starts_with('/')) spec.name.erase(0, 1);
  if (at_->remote && spec.device.empty() && !spec.is_of_host()) spec.device = at_->device->name();
  const bool is_shared =
      spec.kind == StateSpec::Kind::console || spec.kind == StateSpec::Kind::actor;
  for (const StateSpec& first : states_) {
    if (is_shared || first.name != spec.name || !*first.site.file) continue;
    const bool repeats = first.site.line == site.line &&
                         std::string_view(first.site.file) == site.file && first.is_same(spec) &&
                         first.initial.is_same(spec.initial);
    if (!repeats)
      throw Error(Code::already_exists,
                  fmt::format("{}: {} is declared already; give one of them another name, or share "
                              "it by its handle or find_variable",
                              spec.text(), first.text()));
  }
  const int number = declare(spec, site);
  states_[static_cast<std::size_t>(number)].site = site;
  return number;
}

}  // namespace troupe
