#include <troupe/actors/engine/effect_record.hpp>

#include <optional>
#include <utility>

#include <fmt/format.h>

#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe {
namespace {

constexpr const char* kRemedy =
    "fetch it too, or compile with CompileOptions::prune_effects = false";

// Visits the nodes of a graph, its sub-graphs and its functions, each sub-graph and function once.
class Inside {
 public:
  template <class Visit>
  void each(const Node& node, const Visit& visit) {
    for (const auto& sub : subgraphs_of(node)) each(sub->graph, visit);
    if (const FunctionDef* f = function_of(node); f && f->body && seen_.insert(f).second)
      each(f->body->graph, visit);
  }
  template <class Visit>
  void each(const Graph& graph, const Visit& visit) {
    visit(graph);
    for (const Node& node : graph.nodes()) each(node, visit);
  }

 private:
  std::set<const FunctionDef*> seen_;
};

bool changes(Effect e) { return e != Effect::none && e != Effect::read; }

// True for an op whose result depends on what its state holds: all that use a state, but for an
// assignment, an enqueue and a print.
bool takes_state(const OpDef& op) {
  return op.effect == Effect::read || op.effect == Effect::dequeue ||
         (op.effect == Effect::write && op.name != "AssignVariable" && op.name != "Print");
}

// The states whose contents a node, or something in a loop, branches or a called function, takes.
std::set<std::int32_t> read_by(const Node& node) {
  std::set<std::int32_t> states;
  const auto add = [&](const Node& n) {
    if (n.state >= 0 && takes_state(*n.op)) states.insert(n.state);
  };
  add(node);
  Inside().each(node, [&](const Graph& graph) {
    for (const Node& n : graph.nodes()) add(n);
  });
  return states;
}

struct LeftOut {
  std::int32_t read, effect;  // nodes
  std::int32_t state;
  int more = 0;  // further reads that follow such effects
};

// The first read that runs and follows an effect that no function runs, and the last such effect.
std::optional<LeftOut> find_left_out(const Graph& graph, const std::vector<char>& needed,
                                     const std::set<std::uint64_t>& run) {
  std::map<std::int32_t, std::int32_t> left_out;  // by state: the last node
  std::optional<LeftOut> found;
  for (std::int32_t id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (!needed[at(id)]) {
      if (!has_effect(node) || run.contains(node.origin)) continue;
      for (const auto& [state, effect] : effects_of(node))
        if (changes(effect)) left_out.insert_or_assign(state, id);
      continue;
    }
    if (left_out.empty()) continue;
    if (node.op->name == "AssignVariable") {  // no value from before it is seen any more
      left_out.erase(node.state);
      continue;
    }
    for (const std::int32_t state : read_by(node)) {
      const auto effect = left_out.find(state);
      if (effect == left_out.end()) continue;
      if (found) ++found->more;
      else found = LeftOut{id, effect->second, state};
    }
  }
  return found;
}

std::string text_of(const Graph& graph, const LeftOut& l) {
  using enum StateSpec::Kind;
  const StateSpec& state = graph.states()[at(l.state)];
  return fmt::format(
      "{} {} '{}' without {}, which stands before it and which no fetch needs; {}{}",
      graph.describe(l.read),
      state.kind == variable ? "reads variable"
      : state.kind == actor  ? "fires actor"
                             : "reads queue",
      state.name, graph.describe(l.effect), kRemedy,
      l.more ? fmt::format(" ({} more reads follow such effects)", l.more) : std::string());
}

// Origins of optimizers' steps, and their lines. An origin is the same in all versions of a body.
using Steps = std::map<std::uint64_t, Site>;

void add_steps(const Graph& graph, Steps& steps) {
  for (const std::int32_t id : graph.steps())
    steps.emplace(graph.node(id).origin, graph.node(id).site);
}

Steps all_steps(const Graph& graph) {
  Steps steps;
  Inside inside;
  const auto visit = [&](const Graph& g) { add_steps(g, steps); };
  inside.each(graph, visit);
  for (const auto& f : graph.functions())  // also functions that no node calls
    if (f->body) inside.each(f->body->graph, visit);
  return steps;
}

Steps reached_steps(const Graph& graph, const std::vector<char>& needed) {
  Steps steps;
  Inside inside;
  for (const std::int32_t id : graph.steps())
    if (needed[at(id)]) steps.emplace(graph.node(id).origin, graph.node(id).site);
  for (std::int32_t id = 0; id < graph.size(); ++id)
    if (needed[at(id)]) inside.each(graph.node(id), [&](const Graph& g) { add_steps(g, steps); });
  return steps;
}

}  // namespace

std::vector<std::string> EffectRecord::add(const Graph& graph, const std::vector<Edge>& feeds,
                                           std::vector<char> needed) {
  for (const Edge e : feeds) needed[at(e.node)] = 1;  // takes the value that stands there
  std::vector<std::string> warnings;
  std::lock_guard lock(mutex_);
  Known& known = graphs_[graph.id()];
  for (std::int32_t id = 0; id < graph.size(); ++id)
    if (needed[at(id)] && has_effect(graph.node(id))) known.run.insert(graph.node(id).origin);
  const std::optional<LeftOut> left_out = find_left_out(graph, needed, known.run);
  if (left_out) warnings.push_back(text_of(graph, *left_out));
  if (graph.has_steps()) {
    for (const auto& [origin, site] : reached_steps(graph, needed)) known.run.insert(origin);
    std::set<std::string> lines;
    for (const auto& [origin, site] : all_steps(graph)) {
      if (known.run.contains(origin) || !known.told.insert(origin).second) continue;
      std::string line = site.text();
      // the warning of the read has named it
      if (left_out && graph.node(left_out->effect).site.text() == line) continue;
      if (lines.insert(line).second)
        warnings.push_back(
            fmt::format("no fetch reaches the optimizer's step at {}, so it does not "
                        "run; {}",
                        line, kRemedy));
    }
  }
  if (graphs_.size() > kGraphs) graphs_.erase(graphs_.begin());
  return warnings;
}

}  // namespace troupe
