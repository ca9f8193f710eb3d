#include <troupe/ops/graph/program.hpp>

#include <algorithm>

namespace troupe::detail {

Rewriter::Rewriter(const Program& from) : from_(from), to_{from.graph.blank(), {}, {}} {
  std::int32_t n = from.graph.size(), outputs = 0;
  offset_.reserve(n);
  for (std::int32_t id = 0; id < n; ++id) {
    offset_.push_back(outputs);
    outputs += static_cast<std::int32_t>(from.graph.node(id).outputs.size());
  }
  edges_.resize(outputs);
  nodes_.assign(n, -1);
}

Node Rewriter::translated(std::int32_t old) const {
  Node node = from_.graph.node(old);
  for (Edge& e : node.inputs) e = at(e);
  std::vector<std::int32_t> controls;
  for (std::int32_t c : node.controls)
    if (nodes_[c] >= 0) controls.push_back(nodes_[c]);
  std::sort(controls.begin(), controls.end());
  controls.erase(std::unique(controls.begin(), controls.end()), controls.end());
  node.controls = std::move(controls);
  return node;
}

std::int32_t Rewriter::replace(std::int32_t old, Node node) {
  std::int32_t id = to_.graph.append(std::move(node));
  nodes_[old] = id;
  for (std::size_t i = 0; i < from_.graph.node(old).outputs.size(); ++i)
    edges_[offset_[old] + i] = Edge{id, static_cast<std::int32_t>(i)};
  return id;
}

std::int32_t Rewriter::keep(std::int32_t old) { return replace(old, translated(old)); }

void Rewriter::alias(std::int32_t old, const std::vector<Edge>& edges, std::int32_t control) {
  for (std::size_t i = 0; i < edges.size(); ++i) edges_[offset_[old] + i] = edges[i];
  nodes_[old] = control;
}

Program Rewriter::finish() {
  for (Edge e : from_.feeds) to_.feeds.push_back(at(e));
  for (Edge e : from_.fetches) to_.fetches.push_back(at(e));
  return std::move(to_);
}

}  // namespace troupe::detail
