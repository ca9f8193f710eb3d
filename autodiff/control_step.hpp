// The base of the gradients of conditionals, loops and calls (control.hpp).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <troupe/autodiff/control.hpp>
#include <troupe/controlflow/build.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe::control {

// Returns the expression with at least the spec `spec`: a computed cotangent may have a less exact
// spec than its value.
Expr refined(const Expr& e, const ValueSpec& spec);

// Values of the outer graph that the backward node's sub-graphs take, each an argument of all of
// them.
class OuterValues {
 public:
  explicit OuterValues(std::size_t graphs) : arguments_(graphs) {}

  /// Returns the value that stands for `outer` in sub-graph i.
  Expr in(std::size_t i, SubGraph& sub, const Expr& outer, const ValueSpec& spec);
  /// Appends them to the sub-graph's inputs.
  void finish(std::size_t i, SubGraph& sub) {
    for (std::size_t k = 0; k < values_.size(); ++k) {
      auto it = arguments_[i].find(k);
      sub.inputs.push_back(
          it != arguments_[i].end() ? it->second : sub.graph.argument(specs_[k], Site()).edge());
    }
  }
  const Exprs& values() const { return values_; }

 private:
  Exprs values_;
  std::vector<ValueSpec> specs_;
  std::map<std::pair<const Reader*, Edge>, std::size_t> place_;  // places of the values
  std::vector<std::map<std::size_t, Edge>> arguments_;           // arguments of each sub-graph
};

// A new sub-graph of `outer`; nodes that are bound on `outer` stay there.
inline std::shared_ptr<SubGraph> fresh(Graph& outer, std::string what) {
  auto sub = std::make_shared<SubGraph>(outer, std::move(what));
  sub->graph.close();
  return sub;
}

// The common part of the three kinds: the forward node, and where the backward node goes.
class Step {
 public:
  explicit Step(const ControlStep& s)
      : s_(s), forward_(s.graph.node(s.id)), here_(s.graph.current()) {}

 protected:
  Expr input(int i) const { return s_.graph.expr(forward_.inputs[at(i)]); }
  Expr output(int o) const { return s_.graph.expr(Edge{s_.id, o}); }
  /// The cotangent of output o, here, as the forward output is known.
  Expr dy(int o) const {
    const Cotangent& c = s_.cotangents[at(o)];
    Expr dense = c.is_none() ? zero_cotangent(at_home(output(o))) : c.to_dense();
    return refined(at_home(dense), forward_.outputs[at(o)]);
  }
  Expr at_home(const Expr& e) const {
    return &e.reader() == &here_ ? e : here_.adopt(e, forward_.site);
  }
  ValueSpec state_spec(std::int32_t state) const { return s_.graph.states()[at(state)].values[0]; }
  std::string label() const { return forward_.attrs.get<std::string>("label") + "/gradient"; }
  /// Returns the cotangents that have already arrived at the inputs, and no others.
  ControlCotangents nothing() const { return {s_.arrived, {}}; }
  std::vector<std::int32_t> wanted(const Flags& states) const {
    std::vector<std::int32_t> out;
    for (std::size_t i = 0; i < states.size(); ++i)
      if (states[i]) out.push_back(static_cast<std::int32_t>(i));
    return out;
  }
  /// A value that a sub-graph copied for differentiation took from outside after it was copied.
  static std::optional<Expr> taken(const SubGraph& both, Edge e) {
    for (const Graph::Capture& c : both.graph.captures())
      if (c.inner == e) return c.outer;
    return {};
  }
  /// A cotangent of x as a sub-graph yields it.
  static Expr result(const Cotangent& c, const Expr& x) {
    return refined(c.is_none() ? zero_cotangent(x) : c.to_dense(), x.spec());
  }

  const ControlStep& s_;
  const Node forward_;  // as it is before it is extended; keeps its sub-graphs
  Graph& here_;         // the graph of the backward node
};

ControlCotangents differentiate_while(const ControlStep& step);
ControlCotangents differentiate_case(const ControlStep& step);
ControlCotangents differentiate_call(const ControlStep& step);

}  // namespace troupe::control
