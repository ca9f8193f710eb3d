#include <troupe/ops/subgraph.hpp>

#include <fmt/format.h>

namespace troupe {

std::string SubGraphs::text() const {
  std::string text;
  for (const auto& g : graphs_) text += fmt::format("{}{} nodes", text.empty() ? "" : ", ", g->graph.size());
  return text;
}

std::span<const std::shared_ptr<const SubGraph>> subgraphs_of(const Attrs& attrs) {
  const AttrValue* value = attrs.find("graphs");
  const auto* object = value ? std::get_if<std::shared_ptr<const AttrObject>>(value) : nullptr;
  return object ? static_cast<const SubGraphs&>(**object).graphs() : std::span<const std::shared_ptr<const SubGraph>>();
}

std::shared_ptr<const AttrObject> make_subgraphs(std::vector<std::shared_ptr<const SubGraph>> graphs) {
  return std::make_shared<SubGraphs>(std::move(graphs));
}

Effects effects_of(const Node& node) {
  Effects all;
  if (node.state >= 0 && node.op->effect != Effect::none) all[node.state] = node.op->effect;
  for (const auto& sub : subgraphs_of(node))
    for (const Node& inner : sub->graph.nodes())
      for (auto [state, effect] : effects_of(inner)) {
        auto [it, is_new] = all.emplace(state, effect);
        if (!is_new && it->second != effect) it->second = Effect::write;
      }
  return all;
}

bool has_effect(const Node& node) {
  if (node.op->effect != Effect::none) return true;
  if (node.op->side_effect && node.op->name != "Input" && !node.op->evaluate) return true;
  for (const auto& sub : subgraphs_of(node))
    for (const Node& inner : sub->graph.nodes())
      if (has_effect(inner)) return true;
  return false;
}

}  // namespace troupe
