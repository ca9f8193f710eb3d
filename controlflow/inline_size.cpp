#include <troupe/controlflow/inline_size.hpp>

#include <algorithm>

#include <troupe/ops/graph/subgraph.hpp>

namespace troupe {

InlineSizes::InlineSizes(const Program& program) {
  count_calls(program.graph);
  for (const auto& function : program.graph.functions())
    if (function->body) count_calls(function->body->graph);
}

void InlineSizes::count_calls(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (node.op->name == "Call") ++calls_[function_of(node)];
    for (const auto& sub : subgraphs_of(node)) count_calls(sub->graph);
  }
}

bool InlineSizes::is_too_large(const FunctionDef& function) {
  const auto calls = calls_.find(&function);
  return calls != calls_.end() && calls->second > 1 && size_of(function) > kMost;
}

std::int64_t InlineSizes::size_of(const FunctionDef& function) {
  if (function.is_recursive || !function.body) return 1;
  const auto [it, is_new] = sizes_.try_emplace(&function, 1);
  if (is_new) it->second = size_of(function.body->graph);
  return it->second;
}

std::int64_t InlineSizes::size_of(const Graph& graph) {
  std::int64_t size = 0;
  for (const Node& node : graph.nodes()) {
    ++size;
    for (const auto& sub : subgraphs_of(node)) size += size_of(sub->graph);
    if (node.op->name == "Call")
      if (const FunctionDef& callee = *function_of(node); !is_too_large(callee))
        size += size_of(callee);
  }
  return size;
}

}  // namespace troupe
