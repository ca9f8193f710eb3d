// Predicates of the passes that order updates and gradients.
#pragma once

#include <algorithm>
#include <iterator>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe {

/// True if the node changes a variable in place, provided that there is no other reference to it.
inline bool updates_in_place(const Node& n) {
  return n.op->name == "UpdateVariable" || n.op->name == "AssignAdd" || n.op->name == "AssignSub" ||
         n.op->name == "ScatterVariable";
}

/// True if the output shares the input's memory.
inline bool is_view(const Node& n) {
  static const char* const names[] = {"Identity", "Reshape",    "ReshapeLike",  "ReshapeTo",
                                      "Squeeze",  "ExpandDims", "StopGradient", "EdgeAsBf16"};
  return std::any_of(std::begin(names), std::end(names),
                     [&](const char* name) { return n.op->name == name; });
}

/// True if all states are variables, and no node only moves tokens. Then one node may wait for
/// another: queues, users' actors and dead tokens cannot block it.
inline bool has_only_variables(const Graph& g) {
  const auto only_moves_tokens = [](const Node& n) {
    return n.op->name == "Switch" || n.op->name == "Merge" || n.op->name == "Enter" ||
           n.op->name == "Call";
  };
  return std::all_of(g.states().begin(), g.states().end(),
                     [](const StateSpec& s) { return s.kind == StateSpec::Kind::variable; }) &&
         std::none_of(g.nodes().begin(), g.nodes().end(), only_moves_tokens);
}

}  // namespace troupe
