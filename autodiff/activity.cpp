#include <troupe/autodiff/activity.hpp>

#include <algorithm>

#include <troupe/controlflow/build.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {
namespace {

bool any(const Flags& flags) { return std::find(flags.begin(), flags.end(), 1) != flags.end(); }

// True if reads of the wanted states make a value in here active.
bool reads_wanted(const Node& node, const Flags& states) {
  if (!any(states)) return false;
  for (auto [state, effect] : effects_of(node))
    if (states[troupe::at(state)]) return true;
  return false;
}

// True for a call whose function calls itself or has no body: its results are not followed one by
// one, and all depend on all inputs.
bool is_opaque(const Node& node) {
  const FunctionDef* f = function_of(node);
  return f && (f->is_recursive || !f->body);
}
std::vector<std::shared_ptr<const SubGraph>> graphs_of(const Node& node) {
  if (const FunctionDef* f = function_of(node)) return {f->body};
  auto branches = subgraphs_of(node);
  return {branches.begin(), branches.end()};
}
// Inputs before those that are arguments of the sub-graphs.
std::size_t first_argument(const Node& node) { return node.op->name == "Case" ? 1 : 0; }

bool is_loop(const Node& node) { return node.op->name == "While"; }

// The attribute that, with the flags, determines the flow through a node; null if the flow changes
// while functions are being made.
std::shared_ptr<const AttrObject> inside_of(const Node& node) {
  if (is_opaque(node)) return nullptr;
  const char* name = function_of(node) ? "function" : "graphs";
  return node.attrs.get<std::shared_ptr<const AttrObject>>(name);
}

std::string key_of(const AttrObject* inside, std::initializer_list<const Flags*> all) {
  std::string key(reinterpret_cast<const char*>(&inside), sizeof inside);
  for (const Flags* flags : all) {
    key.append(flags->begin(), flags->end());
    key += '/';
  }
  return key;
}

}  // namespace

bool carries_gradient(DType t) { return is_floating(t) || is_complex(t); }

bool is_wanted_read(const Node& node, const Flags& states) {
  return node.state >= 0 && node.op->effect == Effect::read && states[troupe::at(node.state)];
}

Activity::Activity(const Graph& graph, std::int32_t size, Flags states, Flows& flows)
    : graph_(graph), flows_(flows), size_(size), offset_(troupe::at(size) + 1, 0),
      states_(std::move(states)) {
  for (std::int32_t id = 0; id < size_; ++id)
    offset_[troupe::at(id) + 1] =
        offset_[troupe::at(id)] + static_cast<std::int32_t>(graph_.node(id).outputs.size());
  active_.assign(troupe::at(offset_.back()), 0);
}

void Activity::mark(Edge x) {
  if (x.node < size_ && carries_gradient(graph_.spec(x).dtype)) active_[troupe::at(at(x))] = 1;
}

Flags Activity::active_inputs(const Node& node) const {
  Flags out;
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    out.push_back(is_active(node.inputs[i]) && !node.op->takes_only_shape(i));
  return out;
}

void Activity::spread() {
  for (std::int32_t id = 0; id < size_; ++id) {
    const Node& node = graph_.node(id);
    if (flows_.follows && !flows_.follows(node)) continue;
    if (node.op->evaluate) {
      Flags inputs = active_inputs(node);
      if (!any(inputs) && !reads_wanted(node, states_)) continue;
      Flags outputs = flows_.active_outputs(node, inputs, states_);
      // A node that was extended since has more outputs than are numbered here.
      for (std::int32_t i = 0; i < first(id + 1) - first(id); ++i)
        if (outputs[troupe::at(i)]) active_[troupe::at(first(id) + i)] = 1;
      continue;
    }
    bool depends = is_wanted_read(node, states_);
    if (!depends && node.op->differentiable)
      for (std::size_t i = 0; i < node.inputs.size() && !depends; ++i)
        depends = is_active(node.inputs[i]) && !node.op->takes_only_shape(i);
    if (!depends) continue;
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      if (carries_gradient(node.outputs[i].dtype)) active_[troupe::at(first(id)) + i] = 1;
  }
}

Activity::Reached Activity::reached_from(const std::vector<Edge>& ys) const {
  Reached r{Flags(active_.size(), 0), Flags(states_.size(), 0), size_};
  for (Edge y : ys)
    if (is_active(y)) r.values[troupe::at(at(y))] = 1;
  for (std::int32_t id = size_ - 1; id >= 0; --id) {
    Flags outputs(r.values.begin() + first(id), r.values.begin() + first(id + 1));
    if (!any(outputs)) continue;
    const Node& node = graph_.node(id);
    if (is_wanted_read(node, states_)) {
      r.states[troupe::at(node.state)] = 1;
      continue;
    }
    Flags inputs = active_inputs(node);
    if (node.op->evaluate) {
      ReachedInputs inside = flows_.reached_inputs(node, inputs, outputs, states_);
      inputs = std::move(inside.inputs);
      for (std::size_t s = 0; s < inside.states.size(); ++s)
        r.states[s] = r.states[s] || inside.states[s];
    } else if (!node.op->differentiable) {
      continue;
    }
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i]) r.values[troupe::at(at(node.inputs[i]))] = 1;
  }
  return r;
}

// Returns the activity of a sub-graph whose active arguments are `active`, after `spread`.
Activity Flows::activity_of(const SubGraph& sub, const Flags& active, const Flags& states) {
  Activity a(sub.graph, sub.graph.size(), states, *this);
  for (std::size_t i = 0; i < sub.inputs.size(); ++i)
    if (active[i]) a.mark(sub.inputs[i]);
  a.spread();
  return a;
}

// Returns the body's arguments that are active in some iteration.
Flags Flows::active_arguments(const Node& node, const Flags& active_inputs, const Flags& states) {
  WhileView w(node);
  Flags arguments(w.body.inputs.size(), 0);
  for (int i = 0; i < static_cast<int>(active_inputs.size()); ++i)
    arguments[troupe::at(i < w.explicit_variables ? i : i - w.explicit_variables + w.variables)] =
        active_inputs[troupe::at(i)];
  for (bool grows = true; grows;) {
    grows = false;
    Activity body = activity_of(w.body, arguments, states);
    for (int k = 0; k < w.variables; ++k)
      if (!arguments[troupe::at(k)] && body.is_active(w.body.outputs[troupe::at(k)]))
        arguments[troupe::at(k)] = grows = true;
  }
  return arguments;
}

Flags Flows::active_outputs(const Node& node, const Flags& active_inputs, const Flags& states) {
  std::shared_ptr<const AttrObject> inside = inside_of(node);
  if (!inside) return find_active_outputs(node, active_inputs, states);
  std::string key = key_of(inside.get(), {&active_inputs, &states});
  if (const auto it = active_.find(key); it != active_.end()) return it->second;
  Flags found = find_active_outputs(node, active_inputs, states);
  kept_.push_back(std::move(inside));
  return active_.emplace(std::move(key), std::move(found)).first->second;
}

ReachedInputs Flows::reached_inputs(const Node& node, const Flags& active_inputs,
                                    const Flags& reached, const Flags& states) {
  std::shared_ptr<const AttrObject> inside = inside_of(node);
  if (!inside) return find_reached_inputs(node, active_inputs, reached, states);
  std::string key = key_of(inside.get(), {&active_inputs, &reached, &states});
  if (const auto it = reached_.find(key); it != reached_.end()) return it->second;
  ReachedInputs found = find_reached_inputs(node, active_inputs, reached, states);
  kept_.push_back(std::move(inside));
  return reached_.emplace(std::move(key), std::move(found)).first->second;
}

Flags Flows::find_active_outputs(const Node& node, const Flags& active_inputs,
                                 const Flags& states) {
  Flags out(node.outputs.size(), 0);
  if (is_loop(node)) {
    if (!WhileView(node).back_prop) return out;
    Flags arguments = active_arguments(node, active_inputs, states);
    for (std::size_t k = 0; k < out.size(); ++k)
      out[k] = arguments[k] && carries_gradient(node.outputs[k].dtype);
    return out;
  }
  if (is_opaque(node)) {
    const bool is_active = any(active_inputs) || reads_wanted(node, states);
    for (std::size_t o = 0; o < out.size(); ++o)
      out[o] = is_active && carries_gradient(node.outputs[o].dtype);
    return out;
  }
  const Flags arguments(active_inputs.begin() + static_cast<std::ptrdiff_t>(first_argument(node)),
                        active_inputs.end());
  for (const auto& branch : graphs_of(node)) {
    Activity a = activity_of(*branch, arguments, states);
    for (std::size_t o = 0; o < out.size(); ++o) out[o] = out[o] || a.is_active(branch->outputs[o]);
  }
  return out;
}

LoopFlow Flows::loop_flow(const Node& node, const Flags& active_inputs, const Flags& reached,
                          const Flags& states) {
  WhileView w(node);
  LoopFlow flow{active_arguments(node, active_inputs, states), Flags(w.body.inputs.size(), 0),
                Flags(states.size(), 0)};
  for (int k = 0; k < w.variables; ++k)
    flow.reached[troupe::at(k)] = k < static_cast<int>(reached.size()) && reached[troupe::at(k)] &&
                                  flow.active[troupe::at(k)];
  Activity body = activity_of(w.body, flow.active, states);
  for (bool grows = true; grows;) {
    grows = false;
    std::vector<Edge> ys;
    for (int k = 0; k < w.variables; ++k)
      if (flow.reached[troupe::at(k)]) ys.push_back(w.body.outputs[troupe::at(k)]);
    Activity::Reached r = body.reached_from(ys);
    for (std::size_t i = 0; i < w.body.inputs.size(); ++i) {
      if (flow.reached[i] || !r.values[troupe::at(body.at(w.body.inputs[i]))]) continue;
      flow.reached[i] = 1;
      grows = grows || i < troupe::at(w.variables);
    }
    flow.states = r.states;
  }
  return flow;
}

ReachedInputs Flows::find_reached_inputs(const Node& node, const Flags& active_inputs,
                                         const Flags& reached, const Flags& states) {
  ReachedInputs out{Flags(node.inputs.size(), 0), Flags(states.size(), 0)};
  if (is_loop(node)) {
    WhileView w(node);
    if (!w.back_prop) return out;
    LoopFlow flow = loop_flow(node, active_inputs, reached, states);
    for (int i = 0; i < static_cast<int>(out.inputs.size()); ++i)
      out.inputs[troupe::at(i)] =
          active_inputs[troupe::at(i)] &&
          flow.reached[troupe::at(
              i < w.explicit_variables ? i : i - w.explicit_variables + w.variables)];
    out.states = flow.states;
    return out;
  }
  if (is_opaque(node)) {
    if (!any(reached)) return out;
    out.inputs = active_inputs;
    for (auto [state, effect] : effects_of(node))
      out.states[troupe::at(state)] = states[troupe::at(state)];
    return out;
  }
  const std::size_t first = first_argument(node);
  const Flags arguments(active_inputs.begin() + static_cast<std::ptrdiff_t>(first),
                        active_inputs.end());
  for (const auto& branch : graphs_of(node)) {
    Activity a = activity_of(*branch, arguments, states);
    std::vector<Edge> ys;
    for (std::size_t o = 0; o < reached.size(); ++o)
      if (reached[o]) ys.push_back(branch->outputs[o]);
    Activity::Reached r = a.reached_from(ys);
    for (std::size_t c = 0; c < arguments.size(); ++c)
      out.inputs[c + first] =
          out.inputs[c + first] || r.values[troupe::at(a.at(branch->inputs[c]))];
    for (std::size_t s = 0; s < r.states.size(); ++s) out.states[s] = out.states[s] || r.states[s];
  }
  return out;
}

}  // namespace troupe
