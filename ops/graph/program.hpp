// A program: a graph with its feeds and fetches. Passes turn one program into a better one that
// means the same.
//
//   Program p = prune(graph, feeds, fetches);
//   p = fuse_pointwise(p);
//
// A program moves from pass to pass. A pass that finds nothing to do returns its argument.
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

/// Keeps the nodes that the fetches need; a fed edge becomes an Input node, and nodes that only it
/// needed are removed. Throws invalid_argument if an Input is needed but not fed.
/// With `effects` it keeps nodes with effects too: all of a sub-graph's effects happen.
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
/// Does it for a sub-graph, whose program lacks the states; `states` are the outermost graph's.
/// Slow nodes stay outside of their update, so that all but the updates of iterations overlaps.
Program fuse_updates_in(const Program& sub_graph, const std::vector<StateSpec>& states);
/// Pointwise nodes read slices of a split tensor in place, and write the operands of a
/// concatenation directly into its result.
Program fuse_slices(Program program);
/// Reductions of a pointwise node's result go into the node, which stores the result only if other
/// nodes use it.
Program fuse_reductions(Program program);
/// Updates of large variables run after the earlier nodes that read the old value, so that no
/// reader still refers to it.
Program order_updates(Program program);
/// Large gradients that updates consume are made one after the other, each when the one before is
/// consumed, and before the errors that go through beside them; effects keep their order.
Program order_gradients(Program program);
/// Stores f32 products (matmuls, convolutions, attention), and nodes that only move, add or cut
/// them, in `low`, f16 or bf16, and casts where they meet the rest. Variables, losses and fetched
/// values keep their dtype. Changes bits: runs only on request. Throws invalid_argument for other
/// dtypes.
Program mixed_precision(const Program& program, DType low);

/// Rebuilds a program node by node; passes are written with it.
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
  /// Maps all outputs of `old` to these new edges, and controls on it to `control` (-1: drops
  /// them).
  void alias(std::int32_t old, const std::vector<Edge>& edges, std::int32_t control);
  Graph& graph() { return to_.graph; }
  Program finish();

 private:
  const Program& from_;
  Program to_;
  std::vector<std::int32_t> offset_;  // by node: index of its first output in edges_
  std::vector<Edge> edges_;
  std::vector<std::int32_t> nodes_;
};

}  // namespace troupe::detail
