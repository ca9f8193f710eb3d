#include <troupe/controlflow/liveness.hpp>

#include <algorithm>
#include <optional>

#include <troupe/controlflow/build.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe {
namespace {

constexpr std::size_t kMostVersions = 8;  // for a function; further calls share a full version

bool is_environment(const ValueSpec& spec) { return spec.depth == ValueSpec::kAnyDepth; }

// The element of an environment that a node names by a constant.
std::optional<std::int64_t> slot_of(const Graph& g, const Node& node) {
  if (node.inputs.size() < 2 || !is_environment(g.spec(node.inputs[0]))) return {};
  const Node& index = g.node(node.inputs[1].node);
  if (index.op->name != "Constant") return {};
  return static_cast<std::int64_t>(index.attrs.get<Tensor>("value").at(0));
}

// The function itself, or the one that it adds unused results to.
const FunctionDef& least_version(const FunctionDef& function, const std::vector<char>& used) {
  const FunctionDef* f = &function;
  while (f->base && std::find(used.begin() + static_cast<std::ptrdiff_t>(f->base->results.size()),
                              used.end(), 1) == used.end())
    f = f->base;
  return *f;
}

// Primitives by hand: an argument may be dead where its graph does not show it.
bool holds_primitives(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& n) {
    const auto subs = subgraphs_of(n);
    return n.op->name == "Switch" || n.op->name == "Enter" ||
           std::any_of(subs.begin(), subs.end(),
                       [](const auto& sub) { return holds_primitives(sub->graph); });
  });
}

bool is_any_missing(const std::vector<char>& flags) {
  return std::find(flags.begin(), flags.end(), 0) != flags.end();
}

}  // namespace

Liveness::Liveness(const Program& program) : program_(program) {
  const Graph& g = program.graph;
  keeps_arguments_ = holds_primitives(g) ||
                     std::any_of(g.functions().begin(), g.functions().end(), [](const auto& f) {
                       return f->body && holds_primitives(f->body->graph);
                     });
  effect_below_.resize(at(g.size()));
  for (std::int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    bool below = has_effects(n);
    for (Edge e : n.inputs) below = below || effect_below_[at(e.node)];
    for (std::int32_t c : n.controls) below = below || effect_below_[at(c)];
    effect_below_[at(id)] = below;
  }
  outermost_ = &open(g, nullptr, nullptr);
  // an input keeps its index among the feeds
  for (Edge e : program.feeds) outermost_->needed[at(e.node)] = 1;
  for (Edge e : program.fetches) need(*outermost_, e);
  settle();
  find_lost_effects();
}

Liveness::Place& Liveness::open(const Graph& graph, const std::vector<Edge>* inputs,
                                const std::vector<Edge>* outputs) {
  Place& place = places_.emplace_back();
  place.graph = &graph;
  place.inputs = inputs;
  place.outputs = outputs;
  place.needed.assign(at(graph.size()), 0);
  place.argument.assign(at(graph.size()), -1);
  std::int32_t all = 0;
  place.first_output.reserve(at(graph.size()));
  for (std::int32_t id = 0; id < graph.size(); ++id) {
    place.first_output.push_back(all);
    all += static_cast<std::int32_t>(graph.node(id).outputs.size());
    // pruning has left those effects of the outermost graph that the fetches depend on
    if (has_effects(graph.node(id))) need(place, id);
  }
  place.live.assign(at(all), 0);
  if (inputs)
    for (std::size_t k = 0; k < inputs->size(); ++k)
      place.argument[at((*inputs)[k].node)] = static_cast<std::int32_t>(k);
  return place;
}

Liveness::Place& Liveness::open_inside(Place& outer, std::int32_t id, const SubGraph& sub) {
  Place& place = open(sub.graph, &sub.inputs, &sub.outputs);
  place.outer = &outer;
  place.node = id;
  return place;
}

Liveness::Version& Liveness::version_of(const FunctionDef& function, std::vector<char> used) {
  // A call that yields nothing has no end to wait for.
  if (!used.empty() && std::find(used.begin(), used.end(), 1) == used.end()) used[0] = 1;
  auto& known = versions_of_[&function];
  if (const auto it = known.find(used); it != known.end()) return *it->second;
  if (known.size() >= kMostVersions) used.assign(used.size(), 1);
  Version*& made = known[used];
  if (made) return *made;
  Version& version = versions_.emplace_back();
  made = &version;
  version.function = &function;
  version.used = used;
  version.number = versions_.size();
  version.arguments.assign(function.parameters.size(), keeps_arguments_);
  if (!function.parameters.empty() && is_environment(function.parameters.back()))
    version.arguments.back() = 1;
  if (!function.body) {
    is_unfinished_ = true;
    return version;
  }
  Place& body = open(function.body->graph, &function.body->inputs, &function.body->outputs);
  version.body = &body;
  body.version = &version;
  for (std::size_t k = 0; k < used.size(); ++k)
    if (used[k]) need(body, function.body->outputs[k]);
  return version;
}

// ---- demand

void Liveness::need(Place& place, std::int32_t id) {
  if (std::exchange(place.needed[at(id)], 1) == 0) open_.emplace_back(&place, id);
}

void Liveness::need(Place& place, Edge e) {
  char& live = place.live[at(place.first_output[at(e.node)] + e.output)];
  if (live) return need(place, e.node);
  live = 1;
  place.needed[at(e.node)] = 1;
  open_.emplace_back(&place, e.node);
}

bool Liveness::is_live(const Place& place, Edge e) const {
  return place.live[at(place.first_output[at(e.node)] + e.output)] != 0;
}

void Liveness::settle() {
  while (!open_.empty()) {
    auto [place, id] = open_.back();
    open_.pop_back();
    look(*place, id);
  }
}

void Liveness::look(Place& place, std::int32_t id) {
  const Node& node = place.graph->node(id);
  for (std::int32_t c : node.controls) need(place, c);
  if (const std::int32_t k = place.argument[at(id)]; k >= 0) {
    need_argument(place, static_cast<std::size_t>(k));
    return;
  }
  if (node.op->name == "Case") return look_at_case(place, id);
  if (node.op->name == "While") return look_at_while(place, id);
  if (node.op->name == "Call") return look_at_call(place, id);
  look_at_lists(place, node);
  if (node.op->name == "ListWrite")
    if (const auto slot = slot_of(*place.graph, node)) {
      writes_[*slot].emplace_back(&place, id);
      need(place, node.inputs[0]);
      need(place, node.inputs[1]);
      if (!is_dropped_write(place, id)) need(place, node.inputs[2]);
      return;
    }
  for (Edge e : node.inputs) need(place, e);
}

void Liveness::need_argument(Place& place, std::size_t k) {
  if (place.version) {
    Version& version = *place.version;
    if (std::exchange(version.arguments[k], 1)) return;
    for (const auto& [where, call] : version.calls)
      need(*where, where->graph->node(call).inputs[k]);
    return;
  }
  if (!place.outer) return;
  Place& outer = *place.outer;
  char& live = outer.arguments.at(place.node)[k];
  if (std::exchange(live, 1)) return;
  const Node& node = outer.graph->node(place.node);
  if (node.op->name == "Case") return need(outer, node.inputs[k + 1]);
  const WhileView w(node);
  if (k < at(w.variables)) need(outer, Edge{place.node, static_cast<std::int32_t>(k)});
  else need(outer, node.inputs[k - at(w.variables) + at(w.explicit_variables)]);
}

void Liveness::look_at_case(Place& place, std::int32_t id) {
  const Node& node = place.graph->node(id);
  if (!place.inside.contains(id)) {
    place.arguments[id].assign(node.inputs.size() - 1, 0);
    for (const auto& sub : subgraphs_of(node))
      place.inside[id].push_back(&open_inside(place, id, *sub));
    need(place, node.inputs[0]);
  }
  for (std::size_t k = 0; k < node.outputs.size(); ++k)
    if (is_live(place, {id, static_cast<std::int32_t>(k)}))
      for (Place* branch : place.inside[id]) need(*branch, (*branch->outputs)[k]);
}

void Liveness::look_at_while(Place& place, std::int32_t id) {
  const Node& node = place.graph->node(id);
  const WhileView w(node);
  if (!place.inside.contains(id)) {
    place.arguments[id].assign(at(w.variables + w.captures), 0);
    for (const auto& sub : subgraphs_of(node))
      place.inside[id].push_back(&open_inside(place, id, *sub));
    for (Edge e : w.condition.outputs) need(*place.inside[id][0], e);
  }
  for (std::int32_t k = 0; k < w.variables; ++k) {
    if (!is_live(place, {id, k})) continue;
    place.arguments[id][at(k)] = 1;
    need(*place.inside[id][1], w.body.outputs[at(k)]);
    if (k < w.explicit_variables) need(place, node.inputs[at(k)]);
  }
}

void Liveness::look_at_call(Place& place, std::int32_t id) {
  const Node& node = place.graph->node(id);
  const std::vector<char> used = live_outputs(place, id);
  const FunctionDef& function = least_version(*function_of(node), used);
  Version& version = version_of(
      function,
      {used.begin(), used.begin() + static_cast<std::ptrdiff_t>(function.results.size())});
  place.called[id] = &version;
  if (!version.calls.emplace(&place, id).second) return;
  for (std::size_t k = 0; k < version.arguments.size(); ++k)
    if (version.arguments[k]) need(place, node.inputs[k]);
}

// ---- environments: lists of any kind, of which functions read elements by constant numbers

void Liveness::look_at_lists(Place& place, const Node& node) {
  const Graph& g = *place.graph;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (!is_environment(g.spec(node.inputs[i]))) continue;
    const auto slot = i == 0 ? slot_of(g, node) : std::nullopt;
    if (slot && node.op->name == "ListWrite") continue;
    if (slot && (node.op->name == "ListRead" || node.op->name == "ListReadLike")) need_slot(*slot);
    else need_all_slots();
  }
}

void Liveness::need_slot(std::int64_t slot) {
  if (!slots_.insert(slot).second) return;
  for (const auto& [place, id] : writes_[slot]) need(*place, place->graph->node(id).inputs[2]);
}

void Liveness::need_all_slots() {
  if (std::exchange(all_slots_, true)) return;
  for (const auto& [slot, writes] : writes_)
    for (const auto& [place, id] : writes) need(*place, place->graph->node(id).inputs[2]);
}

bool Liveness::is_dropped_write(const Place& place, std::int32_t id) const {
  const Node& node = place.graph->node(id);
  if (node.op->name != "ListWrite" || all_slots_) return false;
  const auto slot = slot_of(*place.graph, node);
  if (!slot || slots_.contains(*slot) || !node.controls.empty()) return false;
  return &place != outermost_ || !effect_below_[at(node.inputs[2].node)];
}

// ---- effects

bool Liveness::has_effects(const Node& node) {
  if (!node.op->evaluate) return has_effect(node);
  if (const auto it = has_effects_.find(&node); it != has_effects_.end()) return it->second;
  bool has = false;
  if (const FunctionDef* function = function_of(node)) has = function->has_effect;
  for (const auto& sub : subgraphs_of(node))
    for (const Node& inner : sub->graph.nodes()) has = has || has_effects(inner);
  return has_effects_[&node] = has;
}

std::vector<Edge> Liveness::kept_inputs(const Place& place, std::int32_t id) const {
  const Node& node = place.graph->node(id);
  std::vector<Edge> kept;
  if (const Version* version = called(place, id)) {
    for (std::size_t k = 0; k < version->arguments.size(); ++k)
      if (version->arguments[k]) kept.push_back(node.inputs[k]);
    return kept;
  }
  const auto it = place.arguments.find(id);
  if (it == place.arguments.end()) return node.inputs;
  const std::vector<char>& live = it->second;
  if (node.op->name == "Case") {
    kept.push_back(node.inputs[0]);
    for (std::size_t k = 0; k < live.size(); ++k)
      if (live[k]) kept.push_back(node.inputs[k + 1]);
    return kept;
  }
  const WhileView w(node);
  for (std::size_t k = 0; k < live.size(); ++k)
    if (live[k] && (k < at(w.explicit_variables) || k >= at(w.variables)))
      kept.push_back(
          node.inputs[k < at(w.variables) ? k : k - at(w.variables) + at(w.explicit_variables)]);
  return kept;
}

void Liveness::reach(std::int32_t id, std::vector<char>& reached) const {
  std::vector<std::int32_t> open{id};
  while (!open.empty()) {
    const std::int32_t next = open.back();
    open.pop_back();
    if (std::exchange(reached[at(next)], 1)) continue;
    for (Edge e : kept_inputs(*outermost_, next)) open.push_back(e.node);
    for (std::int32_t c : outermost_->graph->node(next).controls) open.push_back(c);
  }
}

// Effects happen if the fetches depend on them: also through a value that is no longer needed.
void Liveness::find_lost_effects() {
  const Graph& g = *outermost_->graph;
  std::vector<char> reached(at(g.size()), 0), settled(at(g.size()), 0);
  for (Edge e : program_.fetches) reach(e.node, reached);
  for (bool changed = true; changed;) {
    changed = false;
    for (std::int32_t id = 0; id < g.size(); ++id) {
      if (!reached[at(id)] || settled[at(id)] || !g.node(id).op->evaluate) continue;
      settled[at(id)] = changed = true;
      lost_effects_of(id, reached);
    }
  }
}

void Liveness::lost_effects_of(std::int32_t id, std::vector<char>& reached) {
  const Graph& g = *outermost_->graph;
  std::vector<char> seen(at(id) + 1, 0);
  std::vector<std::int32_t> open, lost;
  for (Edge e : g.node(id).inputs) open.push_back(e.node);
  while (!open.empty()) {
    const std::int32_t next = open.back();
    open.pop_back();
    if (reached[at(next)] || !effect_below_[at(next)] || std::exchange(seen[at(next)], 1)) continue;
    if (has_effects(g.node(next))) {
      lost.push_back(next);
      continue;
    }
    for (Edge e : g.node(next).inputs) open.push_back(e.node);
    for (std::int32_t c : g.node(next).controls) open.push_back(c);
  }
  for (std::int32_t effect : lost) reach(effect, reached);
  if (!lost.empty()) outermost_->effects_before[id] = std::move(lost);
}

// ---- results

std::vector<char> Liveness::live_outputs(const Place& place, std::int32_t id) const {
  const auto first = place.live.begin() + place.first_output[at(id)];
  return {first, first + static_cast<std::ptrdiff_t>(place.graph->node(id).outputs.size())};
}

const Liveness::Version* Liveness::called(const Place& place, std::int32_t id) const {
  const auto it = place.called.find(id);
  return it == place.called.end() ? nullptr : it->second;
}

const std::vector<std::int32_t>& Liveness::effects_before(const Place& place,
                                                          std::int32_t id) const {
  static const std::vector<std::int32_t> none;
  const auto it = place.effects_before.find(id);
  return it == place.effects_before.end() ? none : it->second;
}

bool Liveness::drops_any() const {
  if (is_unfinished_) return false;
  for (const Place& place : places_) {
    for (const auto& [id, version] : place.called) {
      const FunctionDef* function = function_of(place.graph->node(id));
      if (version->function != function || is_any_missing(version->used) ||
          is_any_missing(version->arguments))
        return true;
    }
    for (const auto& [id, arguments] : place.arguments)
      if (is_any_missing(arguments) || is_any_missing(live_outputs(place, id))) return true;
  }
  for (const auto& [slot, writes] : writes_)
    for (const auto& [place, id] : writes)
      if (is_dropped_write(*place, id)) return true;
  return false;
}

}  // namespace troupe
