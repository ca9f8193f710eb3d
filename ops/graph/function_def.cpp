#include <troupe/ops/graph/function_def.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace troupe {
namespace {

// What a body's own nodes do, those in its sub-graphs included; calls add to it later.
void add_from(FunctionDef& f, const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    f.has_draws = f.has_draws || node.op->random;
    if (const FunctionDef* callee = function_of(node)) {
      if (std::find(f.callees.begin(), f.callees.end(), callee) == f.callees.end())
        f.callees.push_back(callee);
      continue;
    }
    if (node.state >= 0 && node.op->effect != Effect::none)
      merge_effect(f.effects, node.state, node.op->effect);
    f.has_effect = f.has_effect || has_own_effect(node);
    for (const auto& sub : subgraphs_of(node)) add_from(f, sub->graph);
  }
}

bool take_over(FunctionDef& f, const FunctionDef& callee) {
  const Effects before = f.effects;
  for (auto [state, effect] : callee.effects) merge_effect(f.effects, state, effect);
  const bool changed = f.effects != before || (callee.has_draws && !f.has_draws) ||
                       (callee.has_effect && !f.has_effect);
  f.has_draws = f.has_draws || callee.has_draws;
  f.has_effect = f.has_effect || callee.has_effect;
  return changed;
}

}  // namespace

const FunctionDef* function_of(const Attrs& attrs) {
  const AttrValue* value = attrs.find("function");
  const auto* object = value ? std::get_if<std::shared_ptr<const AttrObject>>(value) : nullptr;
  return object ? dynamic_cast<const FunctionDef*>(object->get()) : nullptr;
}

std::shared_ptr<const AttrObject> refer_to(const FunctionDef& function) {
  return std::shared_ptr<const AttrObject>(std::shared_ptr<void>(), &function);
}

std::vector<const FunctionDef*> reachable_from(const FunctionDef& function) {
  std::vector<const FunctionDef*> found{&function};
  for (std::size_t i = 0; i < found.size(); ++i)
    for (const FunctionDef* callee : found[i]->callees)
      if (std::find(found.begin(), found.end(), callee) == found.end()) found.push_back(callee);
  return found;
}

std::string too_deep(const FunctionDef& function, int limit, const Site& site) {
  return fmt::format(
      "function '{}' ({}) is called at {} inside {} calls, which is the limit: does its recursion "
      "end?",
      function.name, function.site.text(), site.text(), limit);
}

void analyse(const std::vector<std::shared_ptr<FunctionDef>>& functions) {
  for (const auto& f : functions) {
    f->callees.clear();
    f->effects.clear();
    f->has_draws = f->has_effect = false;
    if (f->body) add_from(*f, f->body->graph);
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& f : functions)
      for (const FunctionDef* callee : f->callees) changed = take_over(*f, *callee) || changed;
  }
  for (const auto& f : functions) {
    f->is_recursive = false;
    for (const FunctionDef* callee : f->callees) {
      std::vector<const FunctionDef*> reached = reachable_from(*callee);
      f->is_recursive =
          f->is_recursive || std::find(reached.begin(), reached.end(), f.get()) != reached.end();
    }
  }
}

}  // namespace troupe
