// Reverse mode through nodes that hold sub-graphs: the gradient of a conditional is a conditional
// on the same predicate, that of a loop a counted loop which walks saved values backwards.
//
// Both go the same way. The sub-graph's nodes are copied, and a sweep appends their gradient; then
// the whole is cut in two: what was appended becomes the sub-graph of the backward node, and what
// it uses of the forward nodes comes to it in the cheapest way there is:
//
//   constants                           are copied
//   captured values                     are captured by the backward node too
//   invariants of a loop, its counters  are computed again
//   what only a shape is taken of       its shape is saved, or known
//   everything else                     is saved: by a loop one value an iteration, in a list
//
// Saved values are more outputs of the forward node, of which a new version is made
// (Graph::extend).
#pragma once

#include <map>
#include <vector>

#include <troupe/autodiff/activity.hpp>
#include <troupe/ops/graph/gradient.hpp>

namespace troupe {

/// A functional node whose cotangents have arrived.
struct ControlStep {
  Graph& graph;
  std::int32_t id;
  std::vector<Cotangent> cotangents;  // one an output; none: nothing depends on it
  Flags needed;                       // inputs: does anybody want their cotangent?
  Flags states;                       // of the graph: is a gradient wanted of them?
  std::vector<Cotangent> arrived;     // at the inputs, from elsewhere: the answer contains it
};

struct ControlCotangents {
  std::vector<Cotangent> inputs;             // one an input
  std::map<std::int32_t, Cotangent> states;  // of those that are read inside
};

/// The index of a functional node's first input that is captured by its sub-graphs.
std::size_t captures_begin(const Node& node);

/// Appends the backward node, and makes a new version of the forward node if that has to save
/// values.
ControlCotangents differentiate_control(const ControlStep& step);

}  // namespace troupe
