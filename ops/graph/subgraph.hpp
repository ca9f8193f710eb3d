// Sub-graphs: the graphs inside a node. A functional node (a conditional, a loop, a call) has an
// attribute `graphs`. Its op defines how they run: `OpDef::evaluate` for eager execution, lowering for
// the executor, a gradient function for autodiff.
//
// Arguments: a sub-graph's `inputs` are Input nodes, fed in order by its node; every effect in it
// happens, whatever its outputs need.
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
  std::vector<Edge> inputs;  // of Input nodes
  std::vector<Edge> outputs;
  // kept, for what refers to it: nested sub-graphs, users' gradient functions
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

/// Of a functional node; empty for others.
std::span<const std::shared_ptr<const SubGraph>> subgraphs_of(const Attrs& attrs);
inline std::span<const std::shared_ptr<const SubGraph>> subgraphs_of(const Node& node) {
  return subgraphs_of(node.attrs);
}
std::shared_ptr<const AttrObject> make_subgraphs(
    std::vector<std::shared_ptr<const SubGraph>> graphs);

/// What a node does to states, its sub-graphs and what it calls included; two that conflict make a
/// write. Of a queue a node may be both, one that enqueues and one that dequeues, which have no
/// order with each other.
using Effects = std::set<std::pair<std::int32_t, Effect>>;
Effects effects_of(const Node& node);
void merge_effect(Effects& all, std::int32_t state, Effect effect);
/// Would anybody notice if the node did not run, though nobody uses its outputs?
bool has_effect(const Node& node);
/// The same of the node's op, whatever its sub-graphs do.
bool has_own_effect(const Node& node);

}  // namespace troupe::detail
