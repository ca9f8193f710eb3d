#include <troupe/autodiff/path_ends.hpp>

#include <algorithm>
#include <utility>

#include <troupe/controlflow/build.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {
namespace {

bool add_end(PathEnd& mine, const PathEnd& other) {
  if (mine || !other) return false;
  mine = other;
  return true;
}

template <class T>
void append_bytes(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_trace(std::string& key, const Trace& t) {
  key += t.goes_on ? 'g' : '-';
  for (const PathEnd* end : {&t.at_integer, &t.at_op}) {
    append_bytes(key, end->graph);
    append_bytes(key, end->node);
  }
  for (const auto& [slot, element] : t.elements) {
    append_bytes(key, slot);
    append_trace(key, element);
  }
  key += '/';
}

std::string key_of_traces(const void* what, const Traces& traces) {
  std::string key;
  append_bytes(key, what);
  for (const Trace& t : traces) append_trace(key, t);
  return key;
}

// The element of an environment that a node reads or writes; -1: the node does neither.
std::int64_t slot_of(const Graph& graph, const Node& node) {
  if (node.op->name != "ListRead" && node.op->name != "ListWrite") return -1;
  if (graph.spec(node.inputs[0]).depth != ValueSpec::kAnyDepth) return -1;
  const Node& index = graph.node(node.inputs[1].node);
  return index.op->name == "Constant"
             ? static_cast<std::int64_t>(index.attrs.get<Tensor>("value").at(0))
             : -1;
}

bool is_none_of(const Traces& traces) {
  return std::all_of(traces.begin(), traces.end(), [](const Trace& t) { return t.is_none(); });
}

// Returns the trace of an output of an op without sub-graphs, from the trace of an input.
Trace passed_on(const Trace& in, const Graph& graph, std::int32_t id, const ValueSpec& output) {
  const OpDef& op = *graph.node(id).op;
  const PathEnd here{&graph, id};
  Trace t = in;
  if (output.depth != ValueSpec::kAnyDepth) {
    t.elements.clear();
    for (const auto& [slot, element] : in.elements) t.add(element);
  }
  if (is_integer(output.dtype)) {
    Trace out;
    out.at_integer = t.at_integer ? t.at_integer : t.at_op ? t.at_op : here;
    return out;
  }
  if (!carries_gradient(output.dtype)) return {};  // bools and strings: a path is cut on purpose
  if (op.differentiable) return t;
  if (op.pointwise || op.name == "StopGradient") return {};
  Trace out;
  out.at_integer = t.at_integer;
  out.at_op = t.at_op ? t.at_op : t.goes_on ? here : PathEnd();
  return out;
}

// True for a node after which no earlier value of its state is seen.
bool replaces(const Node& node) { return node.op->name == "AssignVariable"; }

// True for an update that an optimizer has made.
bool is_of_step(const Graph& graph, std::int32_t id) {
  for (const std::int32_t step : graph.steps()) {
    const std::vector<Edge>& updates = graph.node(step).inputs;
    if (step == id ||
        std::any_of(updates.begin(), updates.end(), [id](Edge e) { return e.node == id; }))
      return true;
  }
  return false;
}

}  // namespace

bool Trace::add(const Trace& other) {
  bool is_new = other.goes_on && !goes_on;
  goes_on = goes_on || other.goes_on;
  is_new = add_end(at_integer, other.at_integer) || is_new;
  is_new = add_end(at_op, other.at_op) || is_new;
  for (const auto& [slot, element] : other.elements) is_new = elements[slot].add(element) || is_new;
  return is_new;
}

PathEnds::Outputs PathEnds::of(const Graph& graph, std::int32_t size,
                               const std::map<Edge, Trace>& given) {
  Outputs out;
  out.first_.push_back(0);
  for (std::int32_t id = 0; id < size; ++id)
    out.first_.push_back(out.first_.back() +
                         static_cast<std::int32_t>(graph.node(id).outputs.size()));
  out.traces_.resize(at(out.first_.back()));
  for (const auto& [edge, trace] : given)
    if (edge.node < size) out.change(edge) = trace;
  for (std::int32_t id = 0; id < size; ++id) {
    const Node& node = graph.node(id);
    Traces inputs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      inputs.push_back(node.op->takes_only_shape(i) ? Trace() : out.at(node.inputs[i]));
    const PathEnd earlier = earlier_write(node, out.written_);
    if (is_none_of(inputs) && !reads_states(node) && !earlier) {
      if (replaces(node)) out.written_.erase(node.state);
      continue;
    }
    const Writes outer = std::exchange(inside_, {});
    const Traces made = through(graph, id, inputs);
    for (std::size_t o = 0; o < made.size(); ++o) {
      Trace& trace = out.change(Edge{id, static_cast<std::int32_t>(o)});
      trace.add(made[o]);
      if (earlier && carries_gradient(node.outputs[o].dtype)) add_end(trace.at_op, earlier);
    }
    note_writes(graph, id, inputs, out.written_);
    for (const auto& [state, write] : inside_) out.written_.insert_or_assign(state, write);
    inside_ = outer;
  }
  return out;
}

// Returns a write of a state that the node, or something inside of it, takes a value of.
PathEnd PathEnds::earlier_write(const Node& node, const Writes& written) const {
  if (written.empty()) return {};
  if (!node.op->evaluate && (node.op->effect == Effect::enqueue || replaces(node))) return {};
  for (const auto& [state, effect] : effects_of(node))
    if (const auto it = written.find(state); it != written.end()) return it->second;
  return {};
}

// A variable among the xs is differentiated at its reads. An optimizer's step is no part of a loss.
// An actor's results end paths by themselves, and its memory is its own.
void PathEnds::note_writes(const Graph& graph, std::int32_t id, const Traces& inputs,
                           Writes& written) const {
  const Node& node = graph.node(id);
  const bool writes = node.op->effect == Effect::write || node.op->effect == Effect::enqueue;
  if (node.state < 0 || !writes || states_[at(node.state)] || node.op->name == "Actor" ||
      is_of_step(graph, id))
    return;
  const bool depends = std::any_of(inputs.begin(), inputs.end(),
                                   [](const Trace& t) { return t.goes_on || t.at_op; });
  if (depends) written.insert_or_assign(node.state, PathEnd{&graph, id});
  else if (replaces(node)) written.erase(node.state);
}

bool PathEnds::reads_states(const Node& node) const {
  if (std::find(states_.begin(), states_.end(), 1) == states_.end()) return false;
  if (!node.op->evaluate) return is_wanted_read(node, states_);
  const Effects effects = effects_of(node);
  return std::any_of(effects.begin(), effects.end(),
                     [&](const auto& e) { return states_[at(e.first)] != 0; });
}

Traces PathEnds::inside(const SubGraph& sub, const Traces& arguments) {
  const std::string key = key_of_traces(&sub, arguments);
  const auto add_writes = [this](const Writes& writes) {
    for (const auto& [state, write] : writes) inside_.insert_or_assign(state, write);
  };
  if (const Traces* known = find_known(key)) {
    add_writes(writes_[key]);
    return *known;
  }
  std::map<Edge, Trace> given;
  for (std::size_t i = 0; i < sub.inputs.size() && i < arguments.size(); ++i)
    if (!arguments[i].is_none()) given[sub.inputs[i]].add(arguments[i]);
  const Outputs all = of(sub.graph, sub.graph.size(), given);
  Traces out;
  for (Edge e : sub.outputs) out.push_back(all.at(e));
  add_writes(writes_[key] = all.written_);
  keep(key, out);
  return out;
}

const Traces* PathEnds::find_known(const std::string& key) const {
  if (const auto it = known_.find(key); it != known_.end()) return &it->second;
  const auto it = drafts_.find(key);
  return it == drafts_.end() ? nullptr : &it->second;
}

// A trace that is kept while a function is under way is a draft, because it may grow later.
void PathEnds::keep(const std::string& key, const Traces& traces) {
  (under_way_.empty() ? known_ : drafts_).emplace(key, traces);
}

// Traces a recursive function repeatedly until nothing new is found.
Traces PathEnds::through_call(const Node& node, const Traces& inputs) {
  const FunctionDef& f = *function_of(node);
  if (!f.body) return Traces(node.outputs.size());
  if (!f.is_recursive) return inside(*f.body, inputs);
  const std::string key = key_of_traces(&f, inputs);
  if (const Traces* known = find_known(key)) return *known;
  if (const auto it = under_way_.find(key); it != under_way_.end()) return it->second;
  under_way_.emplace(key, Traces(f.body->outputs.size()));
  for (bool grows = true; grows;) {
    grows = false;
    drafts_.clear();
    const Traces found = inside(*f.body, inputs);
    for (std::size_t o = 0; o < found.size(); ++o)
      grows = under_way_.at(key)[o].add(found[o]) || grows;
  }
  Traces out = std::move(under_way_.extract(key).mapped());
  keep(key, out);
  return out;
}

Traces PathEnds::arguments_of(const Node& node, const Traces& inputs) {
  if (function_of(node)) return inputs;
  const WhileView w(node);
  Traces arguments(w.body.inputs.size());
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i)
    arguments[at(i < w.explicit_variables ? i : i - w.explicit_variables + w.variables)] =
        inputs[at(i)];
  for (bool grows = true; grows;) {
    grows = false;
    const Traces next = inside(w.body, arguments);
    for (int k = 0; k < w.variables; ++k) grows = arguments[at(k)].add(next[at(k)]) || grows;
  }
  return arguments;
}

Traces PathEnds::through(const Graph& graph, std::int32_t id, const Traces& inputs) {
  const Node& node = graph.node(id);
  Traces out(node.outputs.size());
  if (node.op->name == "While") {
    const WhileView w(node);
    if (!w.back_prop) return out;
    const Traces arguments = arguments_of(node, inputs);
    for (std::size_t k = 0; k < out.size(); ++k) out[k] = arguments[k];
    return out;
  }
  if (function_of(node)) return through_call(node, inputs);
  if (node.op->name == "Case") {
    const Traces arguments(inputs.begin() + 1, inputs.end());
    for (const auto& branch : subgraphs_of(node)) {
      const Traces made = inside(*branch, arguments);
      for (std::size_t o = 0; o < out.size() && o < made.size(); ++o) out[o].add(made[o]);
    }
    return out;
  }
  if (is_wanted_read(node, states_)) {
    for (Trace& t : out) t.goes_on = true;
    return out;
  }
  if (const std::int64_t slot = slot_of(graph, node); slot >= 0) {
    if (node.op->name == "ListRead") {
      Trace read = inputs[0];
      read.elements.clear();
      const auto it = inputs[0].elements.find(slot);
      if (it != inputs[0].elements.end()) read.add(it->second);
      if (!read.is_none()) out[0] = passed_on(read, graph, id, node.outputs[0]);
    } else {
      out[0] = inputs[0];
      if (!inputs[2].is_none()) out[0].elements[slot].add(inputs[2]);
    }
    return out;
  }
  Trace all;
  // Input 0 of WithGradient is the value; its gradient is defined for the others only.
  const std::size_t first = node.op->name == "WithGradient" ? 1 : 0;
  for (std::size_t i = first; i < inputs.size(); ++i) all.add(inputs[i]);
  if (all.is_none()) return out;
  for (std::size_t o = 0; o < out.size(); ++o) out[o] = passed_on(all, graph, id, node.outputs[o]);
  return out;
}

}  // namespace troupe
