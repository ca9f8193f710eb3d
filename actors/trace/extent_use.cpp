#include <troupe/actors/trace/extent_use.hpp>

#include <algorithm>
#include <map>
#include <vector>

#include <troupe/ops/graph/subgraph.hpp>

namespace troupe::detail {
namespace {

using Constants = std::map<std::string, std::vector<Tensor>>;  // by line

void collect(const Graph& graph, Constants& all) {
  for (const Node& node : graph.nodes()) {
    if (node.op->name == "Constant")
      all[node.site.text()].push_back(node.attrs.get<Tensor>("value"));
    for (const auto& sub : subgraphs_of(node)) collect(sub->graph, all);
  }
}

}  // namespace

std::string line_with_extent(const Graph& exact, const Graph& relaxed) {
  Constants known, unknown;
  collect(exact, known);
  collect(relaxed, unknown);
  for (const auto& [line, values] : unknown) {
    const auto there = known.find(line);
    if (there == known.end()) continue;
    for (const Tensor& value : values)
      if (std::none_of(there->second.begin(), there->second.end(),
                       [&](const Tensor& t) { return identical(t, value); }))
        return line;
  }
  return {};
}

}  // namespace troupe::detail
