#include <troupe/autodiff/gradients.hpp>

#include <algorithm>
#include <memory>
#include <set>

#include <fmt/format.h>

#include <troupe/autodiff/differentiate.hpp>
#include <troupe/autodiff/sweep.hpp>
#include <troupe/autodiff/unconnected.hpp>
#include <troupe/controlflow/list_ops.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe {
namespace {

Graph& graph_of(const Expr& y) {
  auto* graph = dynamic_cast<Graph*>(&y.reader());
  if (!graph)
    throw Error(Code::invalid_argument,
                "gradients are taken of a graph; an eager value has none without a tape");
  return *graph;
}

// The innermost of the graphs that the ys are of: others' are around it.
Graph& innermost_of(const std::vector<Expr>& ys) {
  Graph* inner = &graph_of(ys[0]);
  for (const Expr& y : ys)
    if (y.reader().depth() > inner->depth()) inner = &graph_of(y);
  return *inner;
}

bool is_around(const Reader& outer, const Graph& inner) {
  for (const Graph* g = &inner; g; g = g->outer())
    if (g == &outer) return true;
  return false;
}

Graph& outermost(Graph& graph) {
  Graph* g = &graph;
  while (g->outer()) g = g->outer();
  return *g;
}

// Refuses empty expressions before their graph is used.
void refuse_empty(const std::vector<Expr>& ys, const Independents& xs, const Site& at) {
  auto refuse = [&](const std::string& why, Code code = Code::failed_precondition) {
    throw Error(code, fmt::format("gradients at {}: {}", at.text(), why));
  };
  if (ys.empty()) refuse("there is no y", Code::invalid_argument);
  for (const Expr& y : ys)
    if (y.is_empty()) refuse("a y is an empty expression; take what an op returned");
  for (std::size_t i = 0; i < xs.size(); ++i) {
    if (xs[i].expr() && xs[i].expr()->is_empty())
      refuse(fmt::format("x {} is an empty expression; take what an op returned", i));
    if (xs[i].variable() && xs[i].variable()->state() < 0)
      refuse(fmt::format("x {} is a variable that was never declared; take what the graph's "
                         "`variable` returned",
                         i),
             Code::invalid_argument);
  }
}

void check(Graph& graph, const std::vector<Expr>& ys, const Independents& xs,
           const std::vector<Expr>& dys, const Site& at) {
  auto refuse = [&](const std::string& why) {
    throw Error(Code::invalid_argument, fmt::format("gradients at {}: {}", at.text(), why));
  };
  auto text = [&](const Expr& e) { return graph_of(e).describe(e.edge().node); };
  if (!dys.empty() && dys.size() != ys.size())
    refuse(fmt::format("{} ys have {} dys", ys.size(), dys.size()));
  graph.current().require_open("gradients", at);
  for (std::size_t i = 0; i < ys.size(); ++i) {
    const Expr& y = ys[i];
    if (!is_around(y.reader(), graph)) refuse("the ys are of several graphs");
    const bool has_dy = i < dys.size() && !dys[i].is_empty();
    if (!is_floating(y.dtype()) && !(is_complex(y.dtype()) && has_dy))
      refuse(fmt::format("y is {}, the output of {}; only floating values have gradients{}",
                         name_of(y.dtype()), text(y),
                         is_complex(y.dtype()) ? ", and complex ones whose dy is given" : ""));
  }
  for (const Independent& x : xs) {
    const Reader& reader = x.expr() ? x.expr()->reader() : x.variable()->reader();
    std::string name = x.expr() ? "an expression" : "variable '" + x.variable()->name() + "'";
    auto* of = dynamic_cast<const Graph*>(&reader);
    if (!of || !(is_around(reader, graph) || is_around(graph, *of)))
      refuse(name + " is not of the graph of y");
    if (!is_floating(x.dtype()) && !is_complex(x.dtype()))
      refuse(fmt::format("{} is {}; only floating and complex values have gradients",
                         x.expr() ? text(*x.expr()) : name, name_of(x.dtype())));
  }
  for (std::size_t i = 0; i < dys.size(); ++i) {
    if (dys[i].is_empty()) continue;
    if (!is_around(dys[i].reader(), graph.current())) refuse("a dy is not of the graph of y");
    ValueSpec y = ys[i].spec(), dy = dys[i].spec();
    if (y.dtype != dy.dtype || y.depth != dy.depth || !y.shape.is_compatible(dy.shape))
      refuse(fmt::format("dy of {} must be {}, not {}", text(ys[i]), y.text(), dy.text()));
  }
}

Expr ones(Graph& here, const Expr& y) {
  ValueSpec s = y.spec();
  if (s.is_list())
    throw Error(Code::invalid_argument,
                fmt::format("the gradient of {}: a list has no ones; give its dy, or stack it",
                            graph_of(y).describe(y.edge().node)));
  if (s.shape.is_scalar()) return here.constant(Tensor::scalar_as(s.dtype, 1));
  return s.shape.is_known() ? here.ones(s.dtype, s.shape) : ones_like(y);
}

Cotangent zeros_for(Graph& here, const Independent& x, const Site& at) {
  if (const Variable* v = x.variable()) return here.zeros(v->dtype(), v->shape());
  return zero_cotangent(&x.expr()->reader() == &here ? *x.expr() : here.adopt(*x.expr(), at));
}

// A graph on the way from the ys outwards: the values that its inner graph captures are ys, too.
struct Level {
  Graph* graph;
  std::vector<Edge> ys;
  std::vector<Graph::Capture> captures;  // values of the graph that the inner level captures
  // If the inner level is a function's body: the values in the outermost graph's environment that
  // the body and the functions that it calls use.
  std::map<Edge, std::int64_t> environment;
  std::unique_ptr<Sweep> sweep;
};

void add_functions(const Graph& graph, std::set<const FunctionDef*>& all) {
  for (const Node& node : graph.nodes()) {
    if (const FunctionDef* f = function_of(node); f && !all.contains(f)) {
      const std::vector<const FunctionDef*> reached = reachable_from(*f);
      all.insert(reached.begin(), reached.end());
    }
    for (const auto& sub : subgraphs_of(node)) add_functions(sub->graph, all);
  }
}

// Returns the values that the body (the last of the first `n` levels) and the functions that it
// calls take from the environment.
std::map<Edge, std::int64_t> used_environment(const std::vector<Level>& levels, std::size_t n) {
  std::set<const FunctionDef*> functions;
  for (std::size_t i = 0; i < n; ++i) add_functions(*levels[i].graph, functions);
  const Graph& body = *levels[n - 1].graph;
  const std::map<Edge, std::int64_t>& slots = body.environment_slots();
  std::map<Edge, std::int64_t> used;
  for (const Graph::Capture& c : body.captures())
    if (const auto it = slots.find(c.outer.edge()); it != slots.end()) used.insert(*it);
  for (const FunctionDef* f : functions)
    for (const FunctionDef::Captured& c : f->captured) used.emplace(c.outer, c.slot);
  return used;
}

bool has_active_environment(const Level& level) {
  return std::any_of(level.environment.begin(), level.environment.end(), [&](const auto& used) {
    return level.sweep->activity().is_active(used.first);
  });
}

// A body's environment is a list, and so is its cotangent: each value takes its element.
void seed_environment(Level& level, const Level& body, Graph& here) {
  const Cotangent all = body.sweep->of(body.graph->environment());
  if (all.is_none()) return;
  Expr rest = all.to_dense();
  for (const auto& [outer, slot] : level.environment) {
    if (!level.sweep->activity().is_active(outer)) continue;
    const Site& site = level.graph->node(outer.node).site;
    Graph::AtSite at(here, site);
    const Exprs taken =
        take_cotangent(rest, here.constant(slot), here.adopt(level.graph->expr(outer), site));
    rest = taken[0];
    level.sweep->seed(outer, taken[1]);
  }
}

// From the innermost graph outwards, as far as there are xs.
std::vector<Level> levels_of(Graph& inner, const std::vector<Expr>& ys, const Independents& xs,
                             Request& request) {
  auto has_x = [&](const Graph& g) {
    return std::any_of(xs.begin(), xs.end(), [&](const Independent& x) {
      return x.variable() || &x.expr()->reader() == &g;
    });
  };
  std::vector<Level> levels;
  std::size_t wanted = 1;
  for (Graph* g = &inner; g; g = g->outer()) {
    levels.push_back({g, {}, {}, {}, {}});
    if (has_x(*g)) wanted = levels.size();
    for (const Expr& y : ys)
      if (&y.reader() == g) levels.back().ys.push_back(y.edge());
  }
  levels.resize(wanted);
  for (std::size_t i = 1; i < levels.size(); ++i) {
    if (levels[i - 1].graph->is_function_body()) {
      levels[i].environment = used_environment(levels, i);
      continue;
    }
    for (const Graph::Capture& c : levels[i - 1].graph->captures())
      if (carries_gradient(levels[i].graph->spec(c.outer.edge()).dtype))
        levels[i].captures.push_back(c);
  }
  Flags states(outermost(inner).states().size(), 0);
  for (const Independent& x : xs)
    if (x.variable()) states[static_cast<std::size_t>(x.variable()->state())] = 1;
  for (std::size_t i = levels.size(); i-- > 0;) {
    Level& level = levels[i];
    std::int32_t last = -1;
    for (Edge y : level.ys) last = std::max(last, y.node);
    for (const Graph::Capture& c : level.captures) last = std::max(last, c.outer.edge().node);
    for (const auto& [outer, slot] : level.environment) last = std::max(last, outer.node);
    std::vector<Edge> inside;
    for (const Independent& x : xs)
      if (x.expr() && &x.expr()->reader() == level.graph) inside.push_back(x.expr()->edge());
    if (i + 1 < levels.size())
      for (const Graph::Capture& c : levels[i + 1].captures)
        if (levels[i + 1].sweep->activity().is_active(c.outer.edge())) inside.push_back(c.inner);
    if (i + 1 < levels.size() && has_active_environment(levels[i + 1]))
      inside.push_back(level.graph->environment());
    level.sweep = std::make_unique<Sweep>(*level.graph, last + 1, inside, states, request);
  }
  return levels;
}

}  // namespace

namespace detail {

std::vector<Cotangent> cotangents(const std::vector<Expr>& ys, const Independents& xs,
                                  const std::vector<Expr>& dys, const GradientOptions& options,
                                  Site at) {
  refuse_empty(ys, xs, at);
  Graph& inner = innermost_of(ys);
  check(inner, ys, xs, dys, at);
  Graph& here = inner.current();
  auto scope = here.node_scope("gradients");
  Request request;
  if (options.follows) request.flows.follows = *options.follows;
  request.xs_are_independent = options.xs_are_independent;
  std::vector<Level> levels = levels_of(inner, ys, xs, request);
  const std::vector<Independent> all(xs.begin(), xs.end());
  Graphs graphs;
  for (const Level& level : levels) graphs.push_back({level.graph, level.graph->size()});
  const bool is_told = options.unconnected != Unconnected::zeros && !options.ends_are_zeros;
  if (is_told) {
    refuse_ends_at_ops(graphs, ys, all, at);
    hold_arguments(graphs, ys, all, request.flows, at);
  }
  for (std::size_t i = 0; i < levels.size(); ++i) {
    Level& level = levels[i];
    for (std::size_t k = 0; k < ys.size(); ++k) {
      if (&ys[k].reader() != level.graph || !level.sweep->activity().is_active(ys[k].edge()))
        continue;
      Graph::AtSite site(here, level.graph->node(ys[k].edge().node).site);
      level.sweep->seed(ys[k].edge(),
                        dys.empty() || dys[k].is_empty() ? ones(here, ys[k]) : dys[k]);
    }
    for (const Graph::Capture& c : level.captures)
      if (Cotangent inside = levels[i - 1].sweep->of(c.inner); !inside.is_none())
        level.sweep->seed(c.outer.edge(), std::move(inside));
    if (!level.environment.empty()) seed_environment(level, levels[i - 1], here);
    level.sweep->run();
  }
  request.finish();
  const Graph::AtSite site(here, at);
  std::vector<Cotangent> out;
  std::vector<Independent> unreached;
  for (const Independent& x : xs) {
    std::vector<Cotangent> terms;
    for (const Level& level : levels) {
      if (x.variable()) terms.push_back(level.sweep->of_state(x.variable()->state()));
      else if (&x.expr()->reader() == level.graph)
        terms.push_back(level.sweep->of(x.expr()->edge()));
    }
    out.push_back(sum_of(terms));
    if (!out.back().is_none() && is_from_environment(x, graphs) && !reaches(x, ys, graphs))
      out.back() = {};
    if (out.back().is_none()) unreached.push_back(x);
  }
  const bool is_absent = options.unconnected == Unconnected::absent;
  if (is_told && !is_absent) refuse_ends_at_integers(graphs, ys, unreached, at);
  if (options.unconnected != Unconnected::none && !is_absent)
    for (std::size_t i = 0; i < xs.size(); ++i)
      if (out[i].is_none()) out[i] = zeros_for(here, xs[i], at);
  return out;
}

std::vector<Cotangent> cotangents(const Expr& y, const Independents& xs,
                                  const GradientOptions& options, Site at) {
  return cotangents(std::vector<Expr>{y}, xs, {}, options, at);
}

}  // namespace detail

std::vector<Expr> gradients(const std::vector<Expr>& ys, const Independents& xs,
                            const std::vector<Expr>& dys, const GradientOptions& options,
                            std::source_location at) {
  std::vector<Expr> out;
  for (const Cotangent& c : cotangents(ys, xs, dys, options, at)) {
    if (c.is_none()) {
      out.emplace_back();
      continue;
    }
    auto scope = graph_of(ys[0]).node_scope("gradients");
    const Reader::AtSite site(ys[0].reader(), at);
    out.push_back(c.to_dense());
  }
  return out;
}

std::vector<Expr> gradients(const Expr& y, const Independents& xs, const GradientOptions& options,
                            std::source_location at) {
  return gradients(std::vector<Expr>{y}, xs, {}, options, at);
}

}  // namespace troupe
