// One sweep of reverse mode over the first nodes of a graph: forwards to mark the values that
// depend on the xs, backwards to differentiate. Nodes are appended meanwhile; none of them is
// visited. The graph binds them in itself, or in the sub-graph that is being built inside it.
#pragma once

#include <map>
#include <vector>

#include <troupe/autodiff/activity.hpp>
#include <troupe/autodiff/control.hpp>
#include <troupe/ops/graph/gradient.hpp>

namespace troupe {

// Cotangents that have arrived at an output and wait for the rest: lists in one pool, so that a
// long graph costs no allocation a node.
class Arrivals {
 public:
  explicit Arrivals(std::int32_t outputs) : first_(static_cast<std::size_t>(outputs), -1) {}

  void add(std::int32_t output, Cotangent c);
  bool any(std::int32_t output) const { return first_[static_cast<std::size_t>(output)] >= 0; }
  /// Their sum, in the order of arrival; the list is empty afterwards.
  Cotangent take(std::int32_t output);

 private:
  struct Slot {
    Cotangent cotangent;
    std::int32_t next = -1;
  };
  std::vector<Slot> pool_;
  std::int32_t free_ = -1;           // list of unused slots
  std::vector<std::int32_t> first_;  // by output: the first slot of its list; -1: empty
};

class Sweep {
 public:
  /// `states`: which of the graph's states are xs too. `request` must outlive it.
  Sweep(Graph& graph, std::int32_t size, const std::vector<Edge>& xs, Flags states,
        Request& request);

  const Activity& activity() const { return activity_; }
  /// Adds a cotangent of y, or drops it if y does not depend on an x.
  void seed(Edge y, Cotangent dy);
  /// Adds a cotangent of a state to those of its reads.
  void seed_state(std::int32_t state, Cotangent c) { of_states_[state].push_back(std::move(c)); }
  void run();

  /// None if nothing arrived.
  Cotangent of(Edge x) const;
  Cotangent of_state(std::int32_t state) const;

 private:
  bool has_arrivals(std::int32_t id) const;
  void visit(std::int32_t id);
  void pass_on(std::int32_t id, std::vector<Cotangent> totals);
  void pass_through_control(std::int32_t id, std::vector<Cotangent> totals);
  [[noreturn]] void fail(std::int32_t id, Code code, const std::string& why) const;

  Graph& graph_;
  Request& request_;
  Activity activity_;
  Flags is_x_;  // an output
  Arrivals arrivals_;
  std::map<Edge, Cotangent> of_edges_;  // by x that is an expression
  // by x that is a variable: the cotangent of each read
  std::map<std::int32_t, std::vector<Cotangent>> of_states_;
};

}  // namespace troupe
