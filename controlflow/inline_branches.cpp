#include <troupe/controlflow/inline_branches.hpp>

#include <algorithm>

#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/subgraph.hpp>

namespace troupe {
namespace {

// The effects of a branch run because its conditional is fetched, whichever result that is for. In
// its place no fetch would need them.
bool can_inline(const Graph& g, const Node& n) {
  return n.op->name == "Case" && subgraphs_of(n).size() == 1 && n.controls.empty() &&
         n.device.empty() && g.node(n.inputs[0].node).op->name == "Constant" && !has_effect(n);
}

// Returns the branch's results.
std::vector<Edge> put(Graph& to, const Node& conditional) {
  const SubGraph& branch = *subgraphs_of(conditional)[0];
  std::vector<Edge> given(at(branch.graph.size()), Edge{-1, 0});
  for (std::size_t i = 0; i < branch.inputs.size(); ++i)
    given[at(branch.inputs[i].node)] = conditional.inputs[i + 1];
  std::vector<std::int32_t> put_at(at(branch.graph.size()), -1);
  const auto here = [&](Edge e) {
    const Edge outer = given[at(e.node)];
    return outer.node >= 0 ? outer : Edge{put_at[at(e.node)], e.output};
  };
  for (std::int32_t id = 0; id < branch.graph.size(); ++id) {
    if (given[at(id)].node >= 0) continue;
    Node node = branch.graph.node(id);
    for (Edge& e : node.inputs) e = here(e);
    for (std::int32_t& c : node.controls) c = here({c, 0}).node;
    put_at[at(id)] = to.append(std::move(node));
  }
  std::vector<Edge> results;
  for (Edge e : branch.outputs) results.push_back(here(e));
  return results;
}

}  // namespace

Program inline_branches(Program program) {
  const Graph& g = program.graph;
  if (std::none_of(g.nodes().begin(), g.nodes().end(),
                   [&](const Node& n) { return can_inline(g, n); }))
    return program;
  std::vector<char> is_waited_for(at(g.size()), 0);
  for (const Node& n : g.nodes())
    for (std::int32_t c : n.controls) is_waited_for[at(c)] = 1;
  Rewriter rewriter(program);
  for (std::int32_t id = 0; id < g.size(); ++id) {
    if (can_inline(g, g.node(id)) && !is_waited_for[at(id)])
      rewriter.alias(id, put(rewriter.graph(), rewriter.translated(id)), -1);
    else rewriter.keep(id);
  }
  return rewriter.finish();
}

}  // namespace troupe
