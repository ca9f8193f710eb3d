#include <troupe/ops/graph/subgraph.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/ops/graph/function_def.hpp>

namespace troupe::detail {

std::string SubGraphs::text() const {
  std::string text;
  for (const auto& g : graphs_)
    text += fmt::format("{}{} nodes", text.empty() ? "" : ", ", g->graph.size());
  return text;
}

std::span<const std::shared_ptr<const SubGraph>> subgraphs_of(const Attrs& attrs) {
  const AttrValue* value = attrs.find("graphs");
  const auto* object = value ? std::get_if<std::shared_ptr<const AttrObject>>(value) : nullptr;
  return object ? static_cast<const SubGraphs&>(**object).graphs()
                : std::span<const std::shared_ptr<const SubGraph>>();
}

std::shared_ptr<const AttrObject> make_subgraphs(
    std::vector<std::shared_ptr<const SubGraph>> graphs) {
  return std::make_shared<SubGraphs>(std::move(graphs));
}

void merge_effect(Effects& all, std::int32_t state, Effect effect) {
  if (all.contains({state, effect})) return;
  const auto first = all.lower_bound({state, Effect::none}),
             last = all.lower_bound({state + 1, Effect::none});
  if (std::any_of(first, last,
                  [&](const auto& other) { return conflicts(other.second, effect); })) {
    all.erase(first, last);
    effect = Effect::write;
  }
  all.emplace(state, effect);
}

Effects effects_of(const Node& node) {
  if (const FunctionDef* function = function_of(node)) return function->effects;
  Effects all;
  if (node.state >= 0 && node.op->effect != Effect::none) all.emplace(node.state, node.op->effect);
  for (const auto& sub : subgraphs_of(node))
    for (const Node& inner : sub->graph.nodes())
      for (auto [state, effect] : effects_of(inner)) merge_effect(all, state, effect);
  return all;
}

bool has_own_effect(const Node& node) {
  const bool changes_state = node.op->effect != Effect::none && node.op->effect != Effect::read;
  return changes_state || (node.op->side_effect && node.op->name != "Input" && !node.op->evaluate);
}

bool has_effect(const Node& node) {
  if (const FunctionDef* function = function_of(node)) return function->has_effect;
  if (has_own_effect(node)) return true;
  for (const auto& sub : subgraphs_of(node))
    for (const Node& inner : sub->graph.nodes())
      if (has_effect(inner)) return true;
  return false;
}

}  // namespace troupe::detail
