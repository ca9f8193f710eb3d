#include <troupe/autodiff/gradients.hpp>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <troupe/autodiff/differentiate.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph.hpp>

namespace troupe {
namespace {

bool carries_gradient(DType t) { return is_floating(t) || is_complex(t); }

Graph& graph_of(const Expr& y) {
  auto* graph = dynamic_cast<Graph*>(&y.reader());
  if (!graph) throw Error(Code::invalid_argument, "gradients are taken of a graph; an eager value has none without a tape");
  return *graph;
}

// Cotangents that have arrived at an output and wait for the rest: lists in one pool, so that a
// long graph costs no allocation a node.
class Arrivals {
 public:
  explicit Arrivals(std::size_t outputs) : first_(outputs, -1) {}

  void add(std::int32_t output, Cotangent c) {
    std::int32_t slot = free_;
    if (slot >= 0) free_ = pool_[slot].next;
    else slot = static_cast<std::int32_t>(pool_.size()), pool_.emplace_back();
    pool_[slot] = {std::move(c), first_[output]};
    first_[output] = slot;
  }
  bool any(std::int32_t output) const { return first_[output] >= 0; }
  /// Their sum, in the order of arrival; the list is empty afterwards.
  Cotangent take(std::int32_t output) {
    if (first_[output] < 0) return {};
    std::vector<Cotangent> terms;
    for (std::int32_t slot = std::exchange(first_[output], -1); slot >= 0;) {
      terms.push_back(std::move(pool_[slot].cotangent));
      std::int32_t next = std::exchange(pool_[slot].next, free_);
      free_ = std::exchange(slot, next);
    }
    std::reverse(terms.begin(), terms.end());
    return terms.size() == 1 ? std::move(terms[0]) : sum_of(terms);
  }

 private:
  struct Slot {
    Cotangent cotangent;
    std::int32_t next = -1;
  };
  std::vector<Slot> pool_;
  std::int32_t free_ = -1;           // list of unused slots
  std::vector<std::int32_t> first_;  // of an output's list; -1: empty
};

// One sweep over the nodes that ys can depend on, forwards to mark what depends on xs, backwards to
// differentiate. Nodes are appended meanwhile; none of them is visited.
class Sweep {
 public:
  Sweep(Graph& graph, const std::vector<Expr>& ys, const Independents& xs)
      : graph_(graph), size_(last_of(ys) + 1), offset_(numbered()), active_(offset_.back(), 0), is_x_(offset_.back(), 0),
        wanted_states_(graph.states().size(), 0), arrivals_(offset_.back()) {
    mark_independents(xs);
    mark_active();
  }

  void seed(const Expr& y, const Expr& dy) {
    if (!active_[at(y.edge())]) return;
    const Node& node = graph_.node(y.edge().node);
    Graph::AtSite site(graph_, node.site);
    arrivals_.add(at(y.edge()), dy.is_empty() ? ones(y) : dy);
  }

  void run() {
    for (std::int32_t id = size_ - 1; id >= 0; --id)
      if (has_arrivals(id)) visit(id);
  }

  Cotangent result(const Independent& x) {
    if (const Variable* v = x.variable()) {
      auto it = of_states_.find(v->state());
      return it == of_states_.end() ? Cotangent() : sum_of(it->second);
    }
    auto it = of_edges_.find(x.expr()->edge());
    return it == of_edges_.end() ? Cotangent() : it->second;
  }

 private:
  static std::int32_t last_of(const std::vector<Expr>& ys) {
    std::int32_t last = -1;
    for (const Expr& y : ys) last = std::max(last, y.edge().node);
    return last;
  }

  // Where a node's outputs begin when all outputs are numbered; one entry more than nodes.
  std::vector<std::int32_t> numbered() const {
    std::vector<std::int32_t> offset(size_ + 1, 0);
    for (std::int32_t id = 0; id < size_; ++id)
      offset[id + 1] = offset[id] + static_cast<std::int32_t>(graph_.node(id).outputs.size());
    return offset;
  }
  std::int32_t at(Edge e) const { return offset_[e.node] + e.output; }

  bool is_wanted_read(const Node& node) const {
    return node.state >= 0 && node.op->effect == Effect::read && wanted_states_[node.state];
  }

  void mark_independents(const Independents& xs) {
    for (const Independent& x : xs) {
      if (const Variable* v = x.variable()) wanted_states_[v->state()] = 1;
      else if (x.expr()->edge().node < size_) active_[at(x.expr()->edge())] = is_x_[at(x.expr()->edge())] = 1;
    }
  }

  void mark_active() {
    for (std::int32_t id = 0; id < size_; ++id) {
      const Node& node = graph_.node(id);
      bool depends = is_wanted_read(node);
      if (!depends && node.op->differentiable)
        depends = std::any_of(node.inputs.begin(), node.inputs.end(), [&](Edge e) { return active_[at(e)]; });
      if (!depends) continue;
      for (std::size_t i = 0; i < node.outputs.size(); ++i)
        if (carries_gradient(node.outputs[i].dtype)) active_[offset_[id] + i] = 1;
    }
  }

  bool has_arrivals(std::int32_t id) const {
    for (std::int32_t i = offset_[id]; i < offset_[id + 1]; ++i)
      if (arrivals_.any(i)) return true;
    return false;
  }

  Expr ones(const Expr& y) {
    ValueSpec s = y.spec();
    if (s.is_list()) fail(y.edge().node, Code::invalid_argument, "a list has no ones; give its dy, or stack it");
    if (s.shape.is_scalar()) return graph_.constant(Tensor::scalar_as(s.dtype, 1));
    return s.shape.is_known() ? graph_.ones(s.dtype, s.shape) : ones_like(y);
  }

  void visit(std::int32_t id) {
    Graph::AtSite site(graph_, graph_.node(id).site);
    auto device = graph_.on_device(graph_.node(id).device);
    std::vector<Cotangent> totals;
    for (std::int32_t i = 0; i < offset_[id + 1] - offset_[id]; ++i) {
      totals.push_back(arrivals_.take(offset_[id] + i));
      if (is_x_[offset_[id] + i] && !totals.back().is_none()) of_edges_[Edge{id, i}] = totals.back();
    }
    const Node& node = graph_.node(id);
    if (is_wanted_read(node)) of_states_[node.state].push_back(totals[0]);
    else if (node.op->differentiable) pass_on(id, std::move(totals));
  }

  void pass_on(std::int32_t id, std::vector<Cotangent> totals) {
    // A copy: the graph's nodes move when it grows.
    const Node& node = graph_.node(id);
    const OpDef& op = *node.op;
    Attrs attrs = node.attrs;
    std::vector<Edge> inputs = node.inputs;
    Firing firing;
    firing.cotangents = std::move(totals);
    bool any_needed = false, is_complex_path = false;
    for (Edge e : inputs) {
      firing.inputs.push_back(graph_.expr(e));
      firing.needed.push_back(active_[at(e)]);
      any_needed = any_needed || active_[at(e)];
      is_complex_path = is_complex_path || (active_[at(e)] && is_complex(graph_.spec(e).dtype));
    }
    if (!any_needed) return;
    if (is_complex_path) fail(id, Code::unimplemented, "gradients of complex values are not written yet");
    for (std::int32_t i = 0; i < offset_[id + 1] - offset_[id]; ++i) firing.outputs.push_back(graph_.expr(Edge{id, i}));
    std::vector<Cotangent> dxs;
    try {
      dxs = differentiate(op, attrs, std::move(firing));
    } catch (const Error& e) {
      fail(id, e.code(), e.what());
    }
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (!dxs[i].is_none()) arrivals_.add(at(inputs[i]), std::move(dxs[i]));
  }

  [[noreturn]] void fail(std::int32_t id, Code code, const std::string& why) const {
    throw Error(code, fmt::format("the gradient of {}: {}", graph_.describe(id), why));
  }

  Graph& graph_;
  const std::int32_t size_;                 // nodes before the first that this sweep adds
  const std::vector<std::int32_t> offset_;  // of a node's first output in what is indexed by output
  std::vector<char> active_;                // an output: does it depend on an x, differentiably?
  std::vector<char> is_x_;                  // an output
  std::vector<char> wanted_states_;
  Arrivals arrivals_;
  std::map<Edge, Cotangent> of_edges_;                         // of the xs that are expressions
  std::map<std::int32_t, std::vector<Cotangent>> of_states_;   // of each read of the xs that are variables
};

void check(const Graph& graph, const std::vector<Expr>& ys, const Independents& xs, const std::vector<Expr>& dys) {
  auto refuse = [](const std::string& why) { throw Error(Code::invalid_argument, "gradients: " + why); };
  auto text = [&](const Expr& e) { return graph.describe(e.edge().node); };
  if (!dys.empty() && dys.size() != ys.size()) refuse(fmt::format("{} ys have {} dys", ys.size(), dys.size()));
  for (const Expr& y : ys) {
    if (&y.reader() != &graph) refuse("the ys are of several graphs");
    if (!is_floating(y.dtype())) refuse(fmt::format("y is {}, the output of {}; only floating values have gradients", name_of(y.dtype()), text(y)));
  }
  for (const Independent& x : xs) {
    const Reader& reader = x.expr() ? x.expr()->reader() : x.variable()->reader();
    std::string name = x.expr() ? "an expression" : "variable '" + x.variable()->name() + "'";
    if (&reader != &graph) refuse(name + " is not of the graph of y");
    if (!is_floating(x.dtype()))
      refuse(fmt::format("{} is {}; only floating values have gradients", x.expr() ? text(*x.expr()) : name, name_of(x.dtype())));
  }
  for (std::size_t i = 0; i < dys.size(); ++i) {
    if (dys[i].is_empty()) continue;
    if (&dys[i].reader() != &graph) refuse("a dy is not of the graph of y");
    ValueSpec y = ys[i].spec(), dy = dys[i].spec();
    if (y.dtype != dy.dtype || y.depth != dy.depth || !y.shape.is_compatible(dy.shape)) refuse(fmt::format("dy of {} must be {}, not {}", text(ys[i]), y.text(), dy.text()));
  }
}

Cotangent zeros_for(Graph& graph, const Independent& x) {
  if (const Variable* v = x.variable()) return graph.zeros(v->dtype(), v->shape());
  if (x.expr()->spec().is_list()) return zero_cotangent(*x.expr());
  Shape shape = x.expr()->shape();
  return shape.is_known() ? graph.zeros(x.dtype(), shape) : zeros_like(*x.expr());
}

}  // namespace

std::vector<Cotangent> cotangents(const std::vector<Expr>& ys, const Independents& xs, const std::vector<Expr>& dys,
                                  const GradientOptions& options) {
  if (ys.empty()) throw Error(Code::invalid_argument, "gradients: there is no y");
  Graph& graph = graph_of(ys[0]);
  check(graph, ys, xs, dys);
  auto scope = graph.scope("gradients");
  Sweep sweep(graph, ys, xs);
  for (std::size_t i = 0; i < ys.size(); ++i) sweep.seed(ys[i], dys.empty() ? Expr() : dys[i]);
  sweep.run();
  std::vector<Cotangent> out;
  for (const Independent& x : xs) {
    out.push_back(sweep.result(x));
    if (out.back().is_none() && options.unconnected == Unconnected::zero) out.back() = zeros_for(graph, x);
  }
  return out;
}

std::vector<Cotangent> cotangents(const Expr& y, const Independents& xs, const GradientOptions& options) {
  return cotangents(std::vector<Expr>{y}, xs, {}, options);
}

std::vector<Expr> gradients(const std::vector<Expr>& ys, const Independents& xs, const std::vector<Expr>& dys,
                            const GradientOptions& options) {
  std::vector<Expr> out;
  for (const Cotangent& c : cotangents(ys, xs, dys, options)) {
    if (c.is_none()) {
      out.emplace_back();
      continue;
    }
    auto scope = graph_of(ys[0]).scope("gradients");
    out.push_back(c.to_dense());
  }
  return out;
}

std::vector<Expr> gradients(const Expr& y, const Independents& xs, const GradientOptions& options) {
  return gradients(std::vector<Expr>{y}, xs, {}, options);
}

}  // namespace troupe
