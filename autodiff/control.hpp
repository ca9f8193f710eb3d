// Reverse mode through nodes that hold sub-graphs or call functions: conditionals, loops, calls.
//
// NOTES.md explains all three. A sweep appends the gradient to a copy of the sub-graph, which is
// then split: the appended part becomes the backward sub-graph or function. The table says how a
// conditional's or loop's backward part gets a forward value. A call's copies constants and saves
// the rest.
//
//   constants                           are copied
//   captured values                     are captured by the backward node too
//   invariants of a loop, its counters  are computed again
//   values used for their shape only    the shape is saved, or known
//   all other values                    are saved: by a loop one value an iteration, in a list
//
// Saved values are more outputs of the forward node, of which a new version is made
// (Graph::extend); a function's are one more result.
#pragma once

#include <map>
#include <vector>

#include <troupe/autodiff/activity.hpp>
#include <troupe/ops/graph/gradient.hpp>

namespace troupe {

/// A function whose gradient is requested: declared, so that calls of it can be made.
class FunctionGradient {
 public:
  virtual ~FunctionGradient() = default;
  /// Differentiates the body, which may request more functions.
  virtual void differentiate() = 0;
  /// Gives the functions that were declared their bodies.
  virtual void define() = 0;
  virtual Graph& root() const = 0;
};

/// The state of one request for gradients, shared by all levels of sub-graphs and functions.
class Request {
 public:
  Request() = default;
  Request(const Request&) = delete;
  /// Drops the functions that were not finished: the next request starts anew.
  ~Request();

  void add(std::unique_ptr<FunctionGradient> function) {
    functions_.push_back(std::move(function));
  }
  /// Makes all requested functions, one after the other, so that a long chain of calls takes no
  /// stack, and defines them callees first.
  void finish();

  Flows flows;
  bool xs_are_independent = false;  // GradientOptions::xs_are_independent

 private:
  std::vector<std::unique_ptr<FunctionGradient>> functions_;
};

/// A functional node whose cotangents have arrived.
struct ControlStep {
  Graph& graph;
  Request& request;
  std::int32_t id;
  std::vector<Cotangent> cotangents;  // one an output; none: nothing depends on it
  Flags needed;                       // by input: 1 if its cotangent is wanted
  Flags states;                       // by state of the graph: 1 if its gradient is wanted
  std::vector<Cotangent> arrived;     // at the inputs, from elsewhere; part of the result
};

struct ControlCotangents {
  std::vector<Cotangent> inputs;             // one an input
  std::map<std::int32_t, Cotangent> states;  // by state that is read inside
};

/// The index of a functional node's first input that is captured by its sub-graphs.
std::size_t captures_begin(const Node& node);

/// Appends the backward node, and makes a new version of the forward node if that has to save
/// values.
ControlCotangents differentiate_control(const ControlStep& step);

}  // namespace troupe
