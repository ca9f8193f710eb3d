// Differentiable dependencies: the values of a graph that depend on an x, and those of them through
// which a y is reached. Each output and input of a node with sub-graphs is followed by itself: a
// value that passes beside a loop's variables does not depend on them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe {

/// One flag for each of several things in a row: a node's inputs, a graph's states.
using Flags = std::vector<char>;

bool carries_gradient(DType t);
/// True if the node reads a state whose gradient is wanted.
bool is_wanted_read(const Node& node, const Flags& states);

class Flows;

/// The active values among the first `size` nodes of a graph.
class Activity {
 public:
  /// `states`: which of the graph's states are xs. `flows` must outlive it.
  Activity(const Graph& graph, std::int32_t size, Flags states, Flows& flows);
  std::int32_t size() const { return size_; }
  /// Outputs in a row: where node `id`'s begin.
  std::int32_t first(std::int32_t id) const { return offset_[static_cast<std::size_t>(id)]; }
  std::int32_t at(Edge e) const { return first(e.node) + e.output; }
  std::int32_t outputs() const { return offset_.back(); }
  const Flags& states() const { return states_; }

  /// Marks an x as active; `spread` then marks the values that depend on it.
  void mark(Edge x);
  void spread();
  bool is_active(Edge e) const {
    return e.node < size_ && active_[static_cast<std::size_t>(at(e))];
  }
  Flags active_inputs(const Node& node) const;

  /// Backwards from ys: which active values something reaches them through.
  struct Reached {
    Flags values;  // one flag an output, in a row
    Flags states;  // read on the way
    std::int32_t size;
  };
  Reached reached_from(const std::vector<Edge>& ys) const;

 private:
  const Graph& graph_;
  Flows& flows_;
  std::int32_t size_;
  std::vector<std::int32_t> offset_;
  Flags active_;
  Flags states_;
};

/// The active inputs of a node with sub-graphs, and the wanted states, on which the outputs
/// `reached` depend.
struct ReachedInputs {
  Flags inputs;
  Flags states;
};

/// The variables and captures of a While node's body that are active, and the active ones that are
/// reached.
struct LoopFlow {
  Flags active;   // arguments of the body
  Flags reached;  // arguments of the body
  Flags states;   // reached
};

/// Computes the dependencies of nodes with sub-graphs and caches them: a sub-graph that is nested n
/// deep is analysed once, not once for each graph around it. Lifetime: one request for gradients.
class Flows {
 public:
  /// GradientOptions::follows.
  std::function<bool(const Node&)> follows;

  /// Returns the outputs that depend on those inputs or on wanted states read inside.
  Flags active_outputs(const Node& node, const Flags& active_inputs, const Flags& states);
  ReachedInputs reached_inputs(const Node& node, const Flags& active_inputs, const Flags& reached,
                               const Flags& states);
  LoopFlow loop_flow(const Node& node, const Flags& active_inputs, const Flags& reached,
                     const Flags& states);

 private:
  Activity activity_of(const SubGraph& sub, const Flags& active, const Flags& states);
  Flags active_arguments(const Node& node, const Flags& active_inputs, const Flags& states);
  Flags find_active_outputs(const Node& node, const Flags& active_inputs, const Flags& states);
  ReachedInputs find_reached_inputs(const Node& node, const Flags& active_inputs,
                                    const Flags& reached, const Flags& states);

  std::map<std::string, Flags> active_;
  std::map<std::string, ReachedInputs> reached_;
  std::vector<std::shared_ptr<const AttrObject>> kept_;  // keep addresses, the caches' keys, unique
};

}  // namespace troupe
