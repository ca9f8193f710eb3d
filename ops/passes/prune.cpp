#include <troupe/ops/program.hpp>

#include <map>

#include <fmt/format.h>

namespace troupe {

Program prune(const Graph& graph, const std::vector<Edge>& feeds, const std::vector<Edge>& fetches) {
  std::map<Edge, int> fed;
  for (std::size_t i = 0; i < feeds.size(); ++i)
    if (!fed.emplace(feeds[i], static_cast<int>(i)).second)
      throw Error(Code::invalid_argument, fmt::format("{} is fed twice", graph.describe(feeds[i].node)));

  // Ids are topological: one sweep backwards finds everything that is needed.
  std::vector<char> needed(graph.size(), 0);
  auto need = [&](Edge e) {
    if (!fed.contains(e)) needed[e.node] = 1;
  };
  for (Edge e : fetches) need(e);
  for (std::int32_t id = graph.size() - 1; id >= 0; --id) {
    if (!needed[id]) continue;
    for (Edge e : graph.node(id).inputs) need(e);
    for (std::int32_t c : graph.node(id).controls) needed[c] = 1;
  }

  Program out{graph.blank(), std::vector<Edge>(feeds.size()), {}};
  std::vector<std::int32_t> moved(graph.size(), -1);
  for (const auto& [edge, i] : fed) {
    const ValueSpec& spec = graph.spec(edge);
    Node input;
    input.op = &find_op("Input");
    input.attrs = Attrs{{"dtype", spec.dtype}, {"shape", spec.shape}};
    input.outputs = {spec};
    input.name = graph.node(edge.node).name;
    input.scope = graph.node(edge.node).scope;
    input.site = graph.node(edge.node).site;
    input.origin = graph.node(edge.node).origin;
    out.feeds[i] = Edge{out.graph.append(std::move(input)), 0};
  }
  auto at = [&](Edge e) {
    auto it = fed.find(e);
    return it != fed.end() ? out.feeds[it->second] : Edge{moved[e.node], e.output};
  };
  for (std::int32_t id = 0; id < graph.size(); ++id) {
    if (!needed[id]) continue;
    Node node = graph.node(id);
    if (node.op->name == "Input")
      throw Error(Code::invalid_argument, fmt::format("{} is needed for the fetches but not fed", graph.describe(id)));
    for (Edge& e : node.inputs) e = at(e);
    for (std::int32_t& c : node.controls) c = moved[c];
    moved[id] = out.graph.append(std::move(node));
  }
  for (Edge e : fetches) out.fetches.push_back(at(e));
  return out;
}

}  // namespace troupe
