#include <troupe/autodiff/unconnected.hpp>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <troupe/autodiff/path_ends.hpp>
#include <troupe/ops/graph/subgraph.hpp>

namespace troupe {
namespace {

const char* const kAskForZeros =
    "ask for zeros instead with GradientOptions{.unconnected = Unconnected::zeros}";

std::string described(const Expr& e) {
  return static_cast<const Graph&>(e.reader()).describe(e.edge().node);
}

std::string text_of_x(const Independent& x) {
  if (x.variable()) return "variable '" + x.variable()->name() + "'";
  return described(*x.expr());
}

Flags states_among(const std::vector<Independent>& xs, const Graph& root) {
  Flags states(root.states().size(), 0);
  for (const Independent& x : xs)
    if (x.variable()) states[static_cast<std::size_t>(x.variable()->state())] = 1;
  return states;
}

// A graph and those around it, innermost first.
Graphs around(const Graph& inner) {
  Graphs all;
  for (const Graph* g = &inner; g; g = g->outer()) all.push_back({g, g->size()});
  return all;
}

// How the values of a graph that is being built depend on xs of it and of those around it.
class Dependence {
 public:
  /// Beside the xs there may be an argument of one of the graphs.
  Dependence(const Graphs& graphs, const std::vector<Independent>& xs,
             const Graph* of_argument = nullptr, Edge argument = {})
      : graphs_(graphs), ends_(states_among(xs, *graphs.back().graph)), all_(graphs.size()) {
    for (std::size_t i = graphs.size(); i-- > 0;) {
      const Graph& graph = *graphs[i].graph;
      std::map<Edge, Trace> given;
      for (const Independent& x : xs)
        if (x.expr() && &x.expr()->reader() == &graph) given[x.expr()->edge()].goes_on = true;
      if (&graph == of_argument) given[argument].goes_on = true;
      if (i + 1 < graphs.size()) take_in(graph, *graphs[i + 1].graph, given);
      all_[i] = ends_.of(graph, graphs[i].size, given);
    }
  }

  /// Returns an empty trace for a value of any other graph: it depends on no x.
  Trace at(const Reader& reader, Edge e) const {
    for (std::size_t i = 0; i < graphs_.size(); ++i)
      if (graphs_[i].graph == &reader && e.node < graphs_[i].size) return all_[i].at(e);
    return {};
  }
  Trace at(const Expr& e) const { return at(e.reader(), e.edge()); }
  /// Returns the traces of the arguments of a node that is about to go into the innermost graph.
  Traces arguments_of(const Node& node) {
    Traces inputs;
    for (Edge e : node.inputs) inputs.push_back(all_[0].at(e));
    return ends_.arguments_of(node, inputs);
  }

 private:
  // Takes the traces of the inner graph's captures from the outer one, which is already traced.
  void take_in(const Graph& inner, const Graph& outer, std::map<Edge, Trace>& given) const {
    auto take = [&](Edge from, Trace& to) { to.add(at(outer, from)); };
    if (inner.is_function_body()) {
      for (const auto& [value, slot] : outer.environment_slots())
        take(value, given[inner.environment()].elements[slot]);
      return;
    }
    for (const Graph::Capture& c : inner.captures()) take(c.outer.edge(), given[c.inner]);
  }

  const Graphs graphs_;
  PathEnds ends_;
  std::vector<PathEnds::Outputs> all_;
};

[[noreturn]] void refuse_end(const Independent& x, const Expr& y, const PathEnd& end,
                             bool is_integer, const Site& at) {
  const Graph& g = *end.graph;
  const std::string ends = g.describe(end.node);
  const std::string why =
      is_integer ? fmt::format(
                       "{} depends on {} by integers only, which {} makes and which have no "
                       "gradient; leave it out, or {}",
                       described(y), text_of_x(x), ends, kAskForZeros)
                 : fmt::format(
                       "the way from {} to {} leads through {}, which has no gradient; give it "
                       "stop_gradient of its inputs or a gradient by with_gradient, or {}",
                       text_of_x(x), described(y), ends, kAskForZeros);
  // a tape that asks for the gradient of a staged function adds the line itself
  throw Error(Code::invalid_argument,
              at.line == 0 ? why : fmt::format("gradients at {}: {}", at.text(), why));
}

// Refuses each x on which some y depends by a path that ends.
void refuse_ends(const Graphs& graphs, const std::vector<Expr>& ys,
                 const std::vector<Independent>& xs, bool at_integers, const Site& at) {
  const auto end_of = [&](const Trace& t) {
    return !at_integers ? t.at_op : t.goes_on ? PathEnd() : t.at_integer;
  };
  if (xs.empty()) return;
  const Dependence all(graphs, xs);
  if (std::none_of(ys.begin(), ys.end(), [&](const Expr& y) {
        const Trace t = all.at(y);
        return at_integers ? bool(t.at_integer) : bool(t.at_op);
      }))
    return;
  for (const Independent& x : xs) {
    const Dependence alone(graphs, {x});
    for (const Expr& y : ys)
      if (const PathEnd end = end_of(alone.at(y))) refuse_end(x, y, end, at_integers, at);
  }
}

// ---- loop variables and parameters

// A gradient that treated an argument of a sub-graph, on which y depends, as a constant.
struct Held {
  const Graph* graph;
  Edge argument;
  std::string of;               // how the argument is named
  std::vector<Independent> xs;  // expressions of enclosing graphs, and variables
  Site at;
};

std::vector<Edge> own_arguments(const Graph& graph) {
  std::set<Edge> others{graph.environment()};
  for (const Graph::Capture& c : graph.captures()) others.insert(c.inner);
  std::vector<Edge> own;
  for (std::int32_t id = 0; id < graph.size(); ++id)
    if (graph.node(id).op->name == "Input" && !others.contains({id, 0}) &&
        carries_gradient(graph.spec({id, 0}).dtype))
      own.push_back({id, 0});
  return own;
}

// Returns the xs that are variables or belong to graphs around the i-th.
std::vector<Independent> outside_of(const Graphs& graphs, std::size_t i,
                                    const std::vector<Independent>& xs) {
  std::vector<Independent> outside;
  for (const Independent& x : xs)
    if (x.variable() ||
        std::any_of(graphs.begin() + static_cast<std::ptrdiff_t>(i) + 1, graphs.end(),
                    [&](const GraphPart& part) { return part.graph == &x.expr()->reader(); }))
      outside.push_back(x);
  return outside;
}

void hold(const Held& held);

// Refuses an argument whose initial value or later values depend on one of the xs.
void check_held(const Held& held, Graph& here, const Node& node, const SubGraph& sub) {
  const auto it = std::find(sub.inputs.begin(), sub.inputs.end(), held.argument);
  if (it == sub.inputs.end()) return;
  const auto i = static_cast<std::size_t>(it - sub.inputs.begin());
  const Graphs graphs = around(here);
  const auto is_told = [](const Trace& t) { return t.goes_on || t.at_op; };
  if (is_told(Dependence(graphs, held.xs).arguments_of(node)[i]))
    for (const Independent& x : held.xs)
      if (is_told(Dependence(graphs, {x}).arguments_of(node)[i]))
        throw Error(
            Code::invalid_argument,
            fmt::format("gradients at {}: a y depends on {}, which depends on {} outside of {}; "
                        "take the gradient outside, use stop_gradient of the former, or {}",
                        held.at.text(), held.of, text_of_x(x), held.graph->what(), kAskForZeros));
  // It may depend on an argument of an enclosing graph, which in turn may depend on an x.
  for (std::size_t g = 0; g + 1 < graphs.size(); ++g) {
    const std::vector<Independent> outside = outside_of(graphs, g, held.xs);
    if (outside.empty()) return;
    for (Edge own : own_arguments(*graphs[g].graph))
      if (is_told(Dependence(graphs, {}, graphs[g].graph, own).arguments_of(node)[i]))
        hold({graphs[g].graph, own, held.of, outside, held.at});
  }
}

void hold(const Held& held) {
  // Two gradients of one line may differ in their xs.
  std::string key = fmt::format("{} {} {}", held.argument.node, held.of, held.at.text());
  for (const Independent& x : held.xs) {
    if (x.variable()) key += fmt::format(" {}", x.variable()->state());
    else
      key += fmt::format(" {}:{}:{}", x.expr()->reader().depth(), x.expr()->edge().node,
                         x.expr()->edge().output);
  }
  held.graph->check_when_bound(key, [held](Graph& here, const Node& node, const SubGraph& sub) {
    check_held(held, here, node, sub);
  });
}

}  // namespace

void refuse_ends_at_ops(const Graphs& graphs, const std::vector<Expr>& ys,
                        const std::vector<Independent>& xs, const Site& at) {
  refuse_ends(graphs, ys, xs, false, at);
}

void refuse_ends_at_integers(const Graphs& graphs, const std::vector<Expr>& ys,
                             const std::vector<Independent>& xs, const Site& at) {
  refuse_ends(graphs, ys, xs, true, at);
}

bool is_from_environment(const Independent& x, const Graphs& graphs) {
  return graphs.size() > 1 && x.expr() && &x.expr()->reader() == graphs.back().graph &&
         graphs[graphs.size() - 2].graph->is_function_body();
}

bool reaches(const Independent& x, const std::vector<Expr>& ys, const Graphs& graphs) {
  const Dependence alone(graphs, {x});
  return std::any_of(ys.begin(), ys.end(), [&](const Expr& y) { return alone.at(y).goes_on; });
}

void hold_arguments(const Graphs& graphs, const std::vector<Expr>& ys,
                    const std::vector<Independent>& xs, Flows& flows, const Site& at) {
  std::set<Edge> reached;  // edges of this graph, by the inner one
  for (std::size_t i = 0; i + 1 < graphs.size(); ++i) {
    const Graph& g = *graphs[i].graph;
    std::vector<Edge> from(reached.begin(), reached.end());
    reached.clear();
    for (const Expr& y : ys)
      if (&y.reader() == &g) from.push_back(y.edge());
    if (from.empty()) continue;
    const std::vector<Edge> own = own_arguments(g);
    Activity a(g, graphs[i].size, Flags(g.states().size(), 0), flows);
    for (Edge e : own) a.mark(e);
    for (const Graph::Capture& c : g.captures()) a.mark(c.inner);
    a.spread();
    const Activity::Reached r = a.reached_from(from);
    const auto is_reached = [&](Edge e) { return r.values[static_cast<std::size_t>(a.at(e))]; };
    for (const Graph::Capture& c : g.captures())
      if (is_reached(c.inner)) reached.insert(c.outer.edge());
    const std::vector<Independent> outside = outside_of(graphs, i, xs);
    if (outside.empty()) continue;
    for (Edge e : own)
      if (is_reached(e)) hold({&g, e, g.describe(e.node), outside, at});
  }
}

}  // namespace troupe
