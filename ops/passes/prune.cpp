#include <troupe/ops/graph/program.hpp>

#include <map>

#include <fmt/format.h>

#include <troupe/ops/graph/subgraph.hpp>

namespace troupe::detail {

namespace {

// Returns the nodes that the roots need: all from which the roots can be reached. A loop built of
// primitives is a cycle that the ids do not show: a Merge needs the NextIterations that close a
// loop there.
std::vector<char> needed_for(const Graph& graph, const std::map<Edge, int>& fed,
                             std::vector<std::int32_t> roots) {
  std::map<std::int32_t, std::vector<std::int32_t>> closers;
  for (std::int32_t id = 0; id < graph.size(); ++id)
    if (graph.node(id).op->name == "NextIteration")
      closers[graph.node(id).inputs[1].node].push_back(id);
  std::vector<char> needed(static_cast<std::size_t>(graph.size()), 0);
  auto need = [&](std::int32_t id) {
    if (!std::exchange(needed[static_cast<std::size_t>(id)], 1)) roots.push_back(id);
  };
  std::vector<std::int32_t> first = std::exchange(roots, {});
  for (std::int32_t id : first) need(id);
  while (!roots.empty()) {
    std::int32_t id = roots.back();
    roots.pop_back();
    for (Edge e : graph.node(id).inputs)
      if (!fed.contains(e)) need(e.node);
    for (std::int32_t c : graph.node(id).controls)
      if (!fed.contains(Edge{c, 0}) || graph.node(c).op->name != "Input") need(c);
    if (auto it = closers.find(id); it != closers.end())
      for (std::int32_t c : it->second) need(c);
  }
  return needed;
}

std::vector<char> needed_for(const Graph& graph, const std::map<Edge, int>& fed,
                             const std::vector<Edge>& fetches, Keep keep) {
  std::vector<std::int32_t> roots;
  for (Edge e : fetches)
    if (!fed.contains(e)) roots.push_back(e.node);
  if (keep == Keep::effects)
    for (std::int32_t id = 0; id < graph.size(); ++id)
      if (has_effect(graph.node(id))) roots.push_back(id);
  return needed_for(graph, fed, std::move(roots));
}

}  // namespace

std::vector<char> needed_nodes(const Graph& graph, const std::vector<Edge>& feeds,
                               const std::vector<Edge>& fetches, Keep keep) {
  std::map<Edge, int> fed;
  for (std::size_t i = 0; i < feeds.size(); ++i) fed.emplace(feeds[i], static_cast<int>(i));
  return needed_for(graph, fed, fetches, keep);
}

Program prune(const Graph& graph, const std::vector<Edge>& feeds, const std::vector<Edge>& fetches,
              Keep keep) {
  std::map<Edge, int> fed;
  for (std::size_t i = 0; i < feeds.size(); ++i)
    if (!fed.emplace(feeds[i], static_cast<int>(i)).second)
      throw Error(Code::invalid_argument,
                  fmt::format("{} is fed twice", graph.describe(feeds[i].node)));
  const std::vector<char> needed = needed_for(graph, fed, fetches, keep);

  Program out{graph.blank(), std::vector<Edge>(feeds.size()), {}};
  std::vector<std::int32_t> moved(graph.size(), -1);
  for (const auto& [edge, i] : fed) {
    const ValueSpec& spec = graph.spec(edge);
    Node input;
    input.op = &find_op("Input");
    input.attrs = Attrs{{"dtype", spec.dtype}, {"shape", spec.shape}};
    input.outputs = {spec};
    input.name = graph.node(edge.node).name;
    // the caller feeds it under the name of the node that makes it
    if (input.name.empty() && graph.node(edge.node).op != input.op) {
      input.name = graph.name_of(edge.node);
      if (graph.node(edge.node).outputs.size() > 1) input.name += fmt::format(":{}", edge.output);
    }
    input.scope = graph.node(edge.node).scope;
    input.site = graph.node(edge.node).site;
    input.origin = graph.node(edge.node).origin;
    out.feeds[i] = Edge{out.graph.append(std::move(input)), 0};
    if (graph.node(edge.node).op->name == "Input") moved[edge.node] = out.feeds[i].node;
  }
  auto at = [&](Edge e) {
    auto it = fed.find(e);
    return it != fed.end() ? out.feeds[it->second] : Edge{moved[e.node], e.output};
  };
  for (std::int32_t id = 0; id < graph.size(); ++id) {
    if (!needed[id]) continue;
    Node node = graph.node(id);
    if (node.op->name == "Input")
      throw Error(Code::invalid_argument,
                  fmt::format("{} is needed for the {} but not fed", graph.describe(id),
                              keep == Keep::effects ? "fetches and effects" : "fetches"));
    for (Edge& e : node.inputs) e = at(e);
    for (std::int32_t& c : node.controls) c = moved[c];
    moved[id] = out.graph.append(std::move(node));
  }
  for (Edge e : fetches) out.fetches.push_back(at(e));
  return out;
}

}  // namespace troupe::detail
