// Finds where paths from xs to ys end without a gradient. A gradient may be zero because an op on
// the path has none, or because nothing depends on x; PathEnds distinguishes the two.
//
//   PathEnds ends(states);
//   PathEnds::Outputs all = ends.of(graph, size, {{x, {.goes_on = true}}});
//   if (PathEnd end = all.at(y).at_op) ...
//
// A path goes on through ops with gradients, sub-graphs and functions. It ends
//   at an integer                 which has no derivative; only an error if no other path has a
//                                 gradient: `x * cast(cast(x, i32), f32)` is no mistake
//   at an op that has no gradient but yields floats: a user's actor, a draw, an assignment.
//                                 Then the sum over paths lacks a term that is not zero
//   at a write of a state         an assignment, an enqueue; a read that follows has the value, and
//                                 no gradient
//   at stop_gradient, a bool, a step (floor, sign), a loop without back_prop: as requested, or
//                                 exactly zero
//
// The environment of a function is a list; each of its elements has its own trace.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <troupe/autodiff/activity.hpp>

namespace troupe {

namespace detail {

class FunctionDef;

}  // namespace detail

/// A node of some graph, at which a path ends. Invalid: none does.
struct PathEnd {
  const Graph* graph = nullptr;
  std::int32_t node = -1;
  explicit operator bool() const { return graph != nullptr; }
  bool operator==(const PathEnd&) const = default;
};

/// How a value depends on xs.
struct Trace {
  bool goes_on = false;                    // by a path that has a gradient
  PathEnd at_integer;                      // and by one that ends at an integer
  PathEnd at_op;                           // and by one that ends at an op without a gradient
  std::map<std::int64_t, Trace> elements;  // elements of an environment

  bool is_none() const { return !goes_on && !at_integer && !at_op && elements.empty(); }
  bool operator==(const Trace&) const = default;
  /// Adds the trace of another path. Returns true if this trace changed.
  bool add(const Trace& other);
};
using Traces = std::vector<Trace>;
/// By state: the last write of a value that depends on xs.
using Writes = std::map<std::int32_t, PathEnd>;

class PathEnds {
 public:
  /// `states`: the variables among the xs.
  explicit PathEnds(Flags states) : states_(std::move(states)) {}

  /// The traces of all outputs of the graph's first `size` nodes, numbered as in Activity; some
  /// edges have given traces.
  class Outputs {
   public:
    const Trace& at(Edge e) const {
      return traces_[static_cast<std::size_t>(first_[static_cast<std::size_t>(e.node)] + e.output)];
    }

   private:
    friend class PathEnds;
    Trace& change(Edge e) {
      return traces_[static_cast<std::size_t>(first_[static_cast<std::size_t>(e.node)] + e.output)];
    }
    std::vector<std::int32_t> first_;
    Traces traces_;
    Writes written_;
  };
  Outputs of(const Graph& graph, std::int32_t size, const std::map<Edge, Trace>& given);

  /// Returns the traces of the arguments of a While node's body (in any iteration) or of the
  /// function that a Call node calls.
  Traces arguments_of(const Node& node, const Traces& inputs);

 private:
  Traces inside(const SubGraph& sub, const Traces& arguments);
  Traces through(const Graph& graph, std::int32_t id, const Traces& inputs);
  const Traces* find_known(const std::string& key) const;
  void keep(const std::string& key, const Traces& traces);
  Traces through_call(const Node& node, const Traces& inputs);
  bool reads_states(const Node& node) const;
  PathEnd earlier_write(const Node& node, const Writes& written) const;
  void note_writes(const Graph& graph, std::int32_t id, const Traces& inputs,
                   Writes& written) const;

  const Flags states_;
  std::map<std::string, Traces> known_;
  std::map<std::string, Traces> drafts_;     // as known_, while a function is under way
  std::map<std::string, Traces> under_way_;  // found so far in recursive functions
  std::map<std::string, Writes> writes_;     // in sub-graphs
  Writes inside_;                            // in the sub-graphs of the traced node
};

}  // namespace troupe
