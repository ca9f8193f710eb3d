// A sub-graph and its gradient, appended to it by a sweep, cut in two: a forward part, which saves
// values, and a backward part, which gets them. See control.hpp for the values that are saved.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <troupe/autodiff/activity.hpp>
#include <troupe/ops/graph/subgraph.hpp>

namespace troupe {

/// How the backward part gets a forward node's values if they are not saved.
enum class Recompute : char {
  no,
  given,   // its caller has them: captured values, counters
  copied,  // the node is copied, after its inputs
};

class ForwardBackwardSplit {
 public:
  /// The first `forward` nodes are forward ones; `free` has an entry for each. `results`: the
  /// results of the backward part. Both parts become sub-graphs; `both` is not changed.
  ForwardBackwardSplit(std::shared_ptr<SubGraph> both, std::int32_t forward,
                       std::vector<Edge> results, std::vector<Recompute> free);

  /// A value that the forward part has to save.
  struct Saved {
    Edge value;      // in `both`
    bool is_shape;   // true: only the value's shape is saved
    ValueSpec spec;  // spec of the saved value or shape
  };
  const std::vector<Saved>& saved() const { return saved_; }

  /// The forward part, open, as a sub-graph of `outer`, and where in it the saved values are.
  std::shared_ptr<SubGraph> forward_part(Graph& outer, std::vector<Edge>& saved) const;
  /// True if `saved` has the value of `edge` of the original sub-graph.
  bool is_saved_as(const Saved& saved, Edge edge) const;

  /// Copies the backward part into `to` and returns its results there. `given` returns the caller's
  /// counterpart of a value of `both`; `restored`: the saved values.
  std::vector<Edge> backward_part(SubGraph& to, const std::function<Expr(Edge)>& given,
                                  const Exprs& restored) const;

 private:
  Graph& graph() const { return both_->graph; }
  bool is_forward(std::int32_t id) const { return id < forward_; }
  bool is_constant(std::int32_t id) const;
  bool is_free(std::int32_t id) const {
    return free_[static_cast<std::size_t>(id)] != Recompute::no;
  }
  void find_needed();
  void find_hoisted();
  bool can_be_hoisted(const Node& node) const;
  void find_saved();
  void use_operands_of_copies();
  void use(Edge e, bool is_shape);

  std::shared_ptr<SubGraph> both_;
  std::int32_t forward_;
  std::vector<Edge> results_;
  std::vector<Recompute> free_;
  Flags needed_;   // nodes
  Flags hoisted_;  // appended nodes on shapes, which are computed in the forward part
  std::vector<std::pair<Edge, bool>> uses_;  // in order of first use; true: only the shape
  std::map<Edge, std::size_t> use_of_;
  std::vector<Saved> saved_;
};

}  // namespace troupe
