// Finds the nodes of a loop's condition or body that yield equal values in every iteration, and
// those of them that are worth computing once before the loop.
#pragma once

#include <vector>

#include <troupe/controlflow/build.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe {

/// True if a kernel of the node cannot throw for any values of its operands: their shapes are
/// known, and it reads no number that may be out of range.
bool cannot_fail(const Graph& graph, const Node& node);
/// True if the node draws, or a node of its sub-graphs or of the function that it calls.
bool has_draws(const Node& node);
/// True if the node may run earlier, or once instead of often: no effects, no draws, no state.
bool is_movable(const Node& node);

class InvariantNodes {
 public:
  /// `sub`: the loop's condition or its body.
  InvariantNodes(const WhileView& loop, const SubGraph& sub);

  bool is_invariant(std::int32_t id) const { return invariant_[at(id)] != 0; }
  bool may_fail(std::int32_t id) const { return may_fail_[at(id)] != 0; }
  /// True for nodes that are moved; others are copied if a moved node needs them.
  bool is_worth_it(std::int32_t id) const { return worth_it_[at(id)] != 0; }
  /// Leaves the nodes that may fail where they are.
  void keep_failing();
  /// Leaves all of them.
  void keep_all() { worth_it_.assign(worth_it_.size(), 0); }
  bool has_worthy() const;
  /// True if a worthy node may fail.
  bool has_failing() const;
  /// Returns the worthy nodes that remaining nodes use, ascending. `stays`: by node, whether it is
  /// needed if they are moved.
  std::vector<std::int32_t> boundary(std::vector<char>& stays) const;
  /// For an Input node: the index of the loop's argument that it stands for; -1: it is none.
  int argument(std::int32_t id) const { return argument_[at(id)]; }

 private:
  void find();
  void choose();
  bool is_worthy_pointwise(std::int32_t id) const;

  const WhileView& loop_;
  const SubGraph& sub_;
  const Graph& g_;
  std::vector<int> argument_;
  std::vector<char> invariant_, may_fail_, worth_it_, waits_;
  std::vector<std::vector<std::int32_t>> users_;
};

}  // namespace troupe
