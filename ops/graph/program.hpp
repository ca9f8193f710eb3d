// A program: a graph with what goes in and what comes out. Passes turn one program into a better
// one that means the same.
//
//   Program p = prune(graph, feeds, fetches);
//   p = fuse_pointwise(p);
//
// A program is handed from pass to pass: who has nothing to do in it gives back the one it was
// given.
//
// Invariants of every pass: 1. the fetched values are the same, bit for bit; 2. effects on a state
// happen in program order; 3. nodes of unequal device constraints are never joined; 4. a node's
// `origin` and `site` survive, or those of the node it stands for.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include <troupe/ops/graph/graph.hpp>

namespace troupe::detail {

struct Program {
  Graph graph;
  std::vector<Edge> feeds;  // outputs of Input nodes, in the order the caller feeds them
  std::vector<Edge> fetches;
};

/// Keeps what the fetches need; a fed edge becomes an Input node and what lies behind it goes.
/// Throws invalid_argument if an Input is needed but not fed.
/// With `effects` also what has effects: all of a sub-graph's happen.
enum class Keep : std::uint8_t { fetches, effects };
Program prune(const Graph& graph, const std::vector<Edge>& feeds, const std::vector<Edge>& fetches,
              Keep keep = Keep::fetches);
/// Returns for each node of `graph` whether `prune` keeps it. A node whose outputs are all fed may
/// be false.
std::vector<char> needed_nodes(const Graph& graph, const std::vector<Edge>& feeds,
                               const std::vector<Edge>& fetches, Keep keep = Keep::fetches);
/// Evaluates pure nodes whose inputs are constants, up to a size.
Program fold_constants(Program program);
/// Removes what arithmetic makes needless: x + 0, x * 1, transposes of transposes, identities.
Program simplify(Program program);
/// Merges pure nodes with the same op, attributes and inputs.
Program merge_common(Program program);
/// Joins chains and trees of pointwise nodes into one node each.
Program fuse_pointwise(Program program);
/// Pointwise nodes whose value updates a variable, and nothing else, go into the update.
Program fuse_updates(Program program);
/// The same of a sub-graph, whose program does not hold the states: those of the outermost graph.
/// What takes long is left beside its update, so that iterations overlap but for the updates.
Program fuse_updates_in(const Program& sub_graph, const std::vector<StateSpec>& states);
/// Pointwise nodes read slices of a split tensor where they lie, and write what is concatenated
/// where it goes.
Program fuse_slices(Program program);
/// Reductions of what pointwise nodes make go into these, which store it only if somebody else
/// looks at it.
Program fuse_reductions(Program program);
/// Updates of large variables wait for those before them who compute with the old value, and so
/// find nobody who holds it.
Program order_updates(Program program);
/// Large gradients that updates use up are made one after the other, each when the one before is
/// used up, and before what errors go through beside them; effects keep their order.
Program order_gradients(Program program);
/// Stores f32 products (matmuls, convolutions, attention), and what only moves, adds or cuts them,
/// in `low`, f16 or bf16, and casts where they meet the rest; variables, losses and what is fetched
/// keep their dtype. Not bit for bit the same: only for who asks. Throws invalid_argument for other
/// dtypes.
Program mixed_precision(const Program& program, DType low);

/// Rebuilds a program node by node; what passes are written with.
class Rewriter {
 public:
  explicit Rewriter(const Program& from);
  const Program& from() const { return from_; }
  /// The new edge that stands for an old one.
  Edge at(Edge old) const { return edges_[offset_[old.node] + old.output]; }
  std::int32_t control_at(std::int32_t old) const { return nodes_[old]; }
  /// Copies an old node with its inputs and controls translated.
  std::int32_t keep(std::int32_t old);
  /// An old node with translated inputs, not yet appended.
  Node translated(std::int32_t old) const;
  /// Appends `node` in place of old node `old`.
  std::int32_t replace(std::int32_t old, Node node);
  /// All outputs of old stand for these new edges; controls on it go to `control` (-1: to nobody).
  void alias(std::int32_t old, const std::vector<Edge>& edges, std::int32_t control);
  Graph& graph() { return to_.graph; }
  Program finish();

 private:
  const Program& from_;
  Program to_;
  std::vector<std::int32_t> offset_;  // of a node's outputs in edges_
  std::vector<Edge> edges_;
  std::vector<std::int32_t> nodes_;
};

}  // namespace troupe::detail
