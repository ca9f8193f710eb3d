// Sub-graphs: the graphs inside a node. A functional node (a conditional, a loop, a call) has an
// attribute `graphs`. Its op defines how they run: `OpDef::evaluate` for eager execution, lowering
// for the executor, a gradient function for autodiff.
//
// Arguments: a sub-graph's `inputs` are Input nodes, fed in order by its node; every effect in it
// happens, even if no output needs it.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <troupe/ops/graph/graph.hpp>

namespace troupe::detail {

struct SubGraph {
  SubGraph(Graph& outer, std::string what) : graph(outer, std::move(what)) {}
  explicit SubGraph(Graph finished) : graph(std::move(finished)) {}
  /// An open copy of a finished one's first nodes, as a sub-graph of `outer`.
  SubGraph(const std::shared_ptr<const SubGraph>& finished, Graph& outer, std::int32_t nodes)
      : graph(std::shared_ptr<const Graph>(finished, &finished->graph), outer, nodes),
        inputs(finished->inputs), outputs(finished->outputs) {}

  Graph graph;
  std::vector<Edge> inputs;  // outputs of Input nodes
  std::vector<Edge> outputs;
  // keeps the original alive, because nested sub-graphs and users' gradient functions refer to it
  std::shared_ptr<const SubGraph> made_from;
};

/// The attribute `graphs` of a functional node.
class SubGraphs final : public AttrObject {
 public:
  explicit SubGraphs(std::vector<std::shared_ptr<const SubGraph>> graphs)
      : graphs_(std::move(graphs)) {}
  std::span<const std::shared_ptr<const SubGraph>> graphs() const { return graphs_; }
  std::string text() const override;

 private:
  std::vector<std::shared_ptr<const SubGraph>> graphs_;
};

/// Returns the sub-graphs of a functional node; nothing for other nodes.
std::span<const std::shared_ptr<const SubGraph>> subgraphs_of(const Attrs& attrs);
inline std::span<const std::shared_ptr<const SubGraph>> subgraphs_of(const Node& node) {
  return subgraphs_of(node.attrs);
}
std::shared_ptr<const AttrObject> make_subgraphs(
    std::vector<std::shared_ptr<const SubGraph>> graphs);

/// A node's effects on states, with those of its sub-graphs and of the functions that it calls. Two
/// conflicting effects become a write. A node may both enqueue to and dequeue from a queue; these
/// two effects have no order with each other.
using Effects = std::set<std::pair<std::int32_t, Effect>>;
Effects effects_of(const Node& node);
void merge_effect(Effects& all, std::int32_t state, Effect effect);
/// Returns true if the node must run even if its outputs are unused.
bool has_effect(const Node& node);
/// Returns true if the node's op alone, without its sub-graphs, has an effect.
bool has_own_effect(const Node& node);

}  // namespace troupe::detail
