// What the passes that give updates an order have in common.
#pragma once

#include <algorithm>
#include <iterator>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe {

/// Does it change a variable where it lies, if nobody else holds that?
inline bool updates_in_place(const Node& n) {
  return n.op->name == "UpdateVariable" || n.op->name == "AssignAdd" || n.op->name == "AssignSub" ||
         n.op->name == "ScatterVariable";
}

/// Is the output the input's memory?
inline bool is_view(const Node& n) {
  static const char* const names[] = {"Identity", "Reshape",    "ReshapeLike",  "ReshapeTo",
                                      "Squeeze",  "ExpandDims", "StopGradient", "EdgeAsBf16"};
  return std::any_of(std::begin(names), std::end(names),
                     [&](const char* name) { return n.op->name == name; });
}

/// Nothing but variables is changed, and nothing moves tokens alone: one node may wait for another,
/// as neither queues nor users' actors nor dead tokens are in its way.
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
