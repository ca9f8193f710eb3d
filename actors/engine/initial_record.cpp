#include <troupe/actors/engine/initial_record.hpp>

#include <fmt/format.h>

#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/subgraph.hpp>

namespace troupe {
namespace {

std::set<std::int32_t> variables_of(const Graph& graph, const std::vector<char>& needed) {
  std::set<std::int32_t> used;
  for (std::int32_t id = 0; id < graph.size(); ++id)
    if (needed[at(id)])
      for (const auto& [state, effect] : effects_of(graph.node(id)))
        if (graph.states()[at(state)].kind == StateSpec::Kind::variable) used.insert(state);
  return used;
}

}  // namespace

std::vector<std::string> InitialRecord::add(const Graph& graph, const std::vector<char>& needed) {
  std::vector<std::string> warnings;
  const std::set<std::int32_t> used = variables_of(graph, needed);
  std::lock_guard lock(mutex_);
  for (const std::int32_t state : used) {
    const StateSpec& spec = graph.states()[at(state)];
    const auto [it, is_new] = known_.try_emplace(spec.name, Known{graph.id(), spec, false, {}});
    Known& known = it->second;
    if (is_new || known.is_set || known.graph == graph.id()) continue;
    if (known.spec.initial.is_same(spec.initial)) continue;
    if (!known.told.insert(spec.site.text()).second) continue;
    warnings.push_back(
        fmt::format("{} has another initial value than {}, which another graph of this engine has "
                    "used before, and is that variable as it is; give one of them another name, or "
                    "both the same initial value",
                    spec.text(), known.spec.text()));
  }
  return warnings;
}

void InitialRecord::forget(const std::string& variable) {
  std::lock_guard lock(mutex_);
  Known& known = known_[variable];
  known.is_set = true;
  known.spec.initial = {};  // frees its memory
}

}  // namespace troupe
