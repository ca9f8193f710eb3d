#include <troupe/autodiff/control.hpp>

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include <troupe/autodiff/cut.hpp>
#include <troupe/autodiff/sweep.hpp>
#include <troupe/controlflow/build.hpp>
#include <troupe/controlflow/list_ops.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/specs_attr.hpp>

namespace troupe {
namespace {

std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

// The expression, known to be no less than `spec`: what a gradient computes may be known less well
// than what it is the cotangent of.
Expr refined(const Expr& e, const ValueSpec& spec) {
  ValueSpec is = e.spec();
  if (is.depth == ValueSpec::kAnyDepth || spec.covers(is)) return e;
  return e.reader().bind(find_op("EnsureShape"), std::span<const Expr>(&e, 1), attrs_of(spec), Site())[0];
}

// Values of the outer graph that the backward node's sub-graphs take, each an argument of all of them.
class OuterValues {
 public:
  explicit OuterValues(std::size_t graphs) : arguments_(graphs) {}

  /// What stands for `outer` in sub-graph i.
  Expr in(std::size_t i, SubGraph& sub, const Expr& outer, const ValueSpec& spec) {
    const auto& source = static_cast<Graph&>(outer.reader()).node(outer.edge().node);
    if (source.op->name == "Constant" && !carries_gradient(source.outputs[0].dtype)) return sub.graph.constant(source.attrs.get<Tensor>("value"));
    auto is_same = [&](const Expr& e) { return &e.reader() == &outer.reader() && e.edge() == outer.edge(); };
    std::size_t k = static_cast<std::size_t>(std::find_if(values_.begin(), values_.end(), is_same) - values_.begin());
    if (k == values_.size()) {
      values_.push_back(outer);
      specs_.push_back(spec);
    }
    auto [it, is_new] = arguments_[i].emplace(k, Edge{});
    if (is_new) it->second = sub.graph.argument(spec, Site()).edge();
    return sub.graph.expr(it->second);
  }
  /// Appends them to the sub-graph's inputs.
  void finish(std::size_t i, SubGraph& sub) {
    for (std::size_t k = 0; k < values_.size(); ++k) {
      auto it = arguments_[i].find(k);
      sub.inputs.push_back(it != arguments_[i].end() ? it->second : sub.graph.argument(specs_[k], Site()).edge());
    }
  }
  const Exprs& values() const { return values_; }

 private:
  Exprs values_;
  std::vector<ValueSpec> specs_;
  std::vector<std::map<std::size_t, Edge>> arguments_;  // of each sub-graph
};

// A new sub-graph of `outer`; what is bound on `outer` stays there.
std::shared_ptr<SubGraph> fresh(Graph& outer, std::string what) {
  auto sub = std::make_shared<SubGraph>(outer, std::move(what));
  sub->graph.close();
  return sub;
}

// What both kinds of node share: a node, and a sub-graph of it to which a sweep appends.
class Step {
 public:
  explicit Step(const ControlStep& s) : s_(s), forward_(s.graph.node(s.id)), here_(s.graph.current()) {}

 protected:
  Expr input(int i) const { return s_.graph.expr(forward_.inputs[index(i)]); }
  Expr output(int o) const { return s_.graph.expr(Edge{s_.id, o}); }
  /// The cotangent of output o, here, as the forward output is known.
  Expr dy(int o) const {
    const Cotangent& c = s_.cotangents[index(o)];
    Expr dense = c.is_none() ? zero_cotangent(at_home(output(o))) : c.to_dense();
    return refined(at_home(dense), forward_.outputs[index(o)]);
  }
  Expr at_home(const Expr& e) const { return &e.reader() == &here_ ? e : here_.adopt(e, forward_.site); }
  ValueSpec state_spec(std::int32_t state) const { return s_.graph.states()[index(state)].values[0]; }
  std::string label() const { return forward_.attrs.get<std::string>("label") + "/gradient"; }
  /// What has arrived at the inputs is passed on, whatever else is found.
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
  Graph& here_;         // where the backward node goes
};

// ---- loops

class WhileStep : Step {
 public:
  explicit WhileStep(const ControlStep& s) : Step(s), w_(forward_) {}

  ControlCotangents run() {
    if (!w_.back_prop) return nothing();
    Flags reached;
    for (const Cotangent& c : s_.cotangents) reached.push_back(!c.is_none());
    flow_ = loop_flow(forward_, s_.needed, reached, s_.states);
    for (int k = 0; k < w_.variables; ++k)
      if (flow_.reached[index(k)]) carried_.push_back(k);
    for (int c = 0; c < w_.captures; ++c)
      if (flow_.reached[index(w_.variables + c)]) accumulated_.push_back(c);
    states_ = wanted(flow_.states);
    if (carried_.empty()) return nothing();
    differentiate_body();
    Cut cut(both_, nodes_, results_, free_values());
    save(cut);
    return backward(cut);
  }

 private:
  Edge body_input(int i) const { return w_.body.inputs[index(i)]; }
  Edge body_output(int k) const { return w_.body.outputs[index(k)]; }
  ValueSpec variable(int i) const { return w_.body.graph.spec(body_input(i)); }

  // The cotangents of the variables go through the backward loop, and with them a sum for each
  // captured value and each state.
  void differentiate_body() {
    both_ = std::make_shared<SubGraph>(subgraphs_of(forward_)[1], here_, w_.body.graph.size());
    both_->made_from = subgraphs_of(forward_)[1];
    nodes_ = both_->graph.size();
    Graph& g = both_->graph;
    Graph::AtSite site(g, forward_.site);
    auto scope = g.scope("gradients");
    for (int k : carried_) arguments_.push_back(g.argument(variable(k), forward_.site));
    for (int c : accumulated_) arguments_.push_back(g.argument(variable(w_.variables + c), forward_.site));
    for (std::int32_t s : states_) arguments_.push_back(g.argument(state_spec(s), forward_.site));
    std::vector<Edge> xs;
    for (int k : carried_) xs.push_back(body_input(k));
    for (int c : accumulated_) xs.push_back(body_input(w_.variables + c));
    Sweep sweep(g, nodes_, xs, flow_.states);
    std::size_t next = carried_.size();
    // The sums first: what comes later is added to them where they lie.
    for (int c : accumulated_) sweep.seed(body_input(w_.variables + c), arguments_[next++]);
    for (std::int32_t s : states_) sweep.seed_state(s, arguments_[next++]);
    for (std::size_t i = 0; i < carried_.size(); ++i) {
      Edge y = body_output(carried_[i]);
      if (sweep.activity().is_active(y)) sweep.seed(y, refined(arguments_[i], g.spec(y)));
    }
    sweep.run();
    for (Edge x : xs) results_.push_back(result(sweep.of(x), g.expr(x)).edge());
    for (std::int32_t s : states_) results_.push_back(refined(sweep.of_state(s).to_dense(), state_spec(s)).edge());
  }

  // An integer variable to which each iteration adds the same.
  struct Counter {
    std::int64_t step;
  };
  std::optional<Counter> counter(int k) const {
    ValueSpec spec = variable(k);
    if (spec.is_list() || !is_integer(spec.dtype) || !spec.shape.is_scalar()) return {};
    const Graph& g = w_.body.graph;
    const Node& next = g.node(body_output(k).node);
    bool is_add = next.op->name == "Add", is_sub = next.op->name == "Sub";
    if (!is_add && !is_sub) return {};
    for (std::size_t own : {0u, 1u}) {
      const Node& other = g.node(next.inputs[1 - own].node);
      if (next.inputs[own] != body_input(k) || other.op->name != "Constant" || (is_sub && own == 1)) continue;
      const Tensor& by = other.attrs.get<Tensor>("value");
      if (!by.shape().is_scalar()) continue;
      auto step = static_cast<std::int64_t>(by.at(0));
      return Counter{is_add ? step : -step};
    }
    return {};
  }
  // What counter k starts as, if that is known.
  std::optional<std::int64_t> start(int k) const {
    if (k >= w_.explicit_variables) return 0;
    const Node& first = s_.graph.node(forward_.inputs[index(k)].node);
    if (first.op->name != "Constant") return {};
    return static_cast<std::int64_t>(first.attrs.get<Tensor>("value").at(0));
  }

  // Which forward nodes' values the backward body has anyway, or computes again: no more work than
  // reading a saved value, unless it is the same in every iteration.
  std::vector<Free> free_values() const {
    std::vector<Free> free(index(nodes_), Free::no);
    Flags changes(index(nodes_), 0);  // from iteration to iteration
    const Graph& g = w_.body.graph;
    for (int k = 0; k < w_.variables; ++k) {
      const bool is_same = body_output(k) == body_input(k), counts = counter(k).has_value();
      if (is_same || counts) free[index(body_input(k).node)] = Free::given;
      changes[index(body_input(k).node)] = !is_same;
    }
    for (int c = 0; c < w_.captures; ++c) free[index(body_input(w_.variables + c).node)] = Free::given;
    for (std::int32_t id = 0; id < nodes_; ++id) {
      const Node& node = g.node(id);
      if (node.op->name == "Input" || !node.op->is_pure() || node.op->evaluate) continue;
      bool has_all = true, changed = false, is_small = true;
      for (Edge e : node.inputs) {
        has_all = has_all && free[index(e.node)] != Free::no;
        changed = changed || changes[index(e.node)];
      }
      for (const ValueSpec& s : node.outputs) is_small = is_small && !s.is_list() && s.shape.is_scalar();
      const bool is_cheap = (node.op->pointwise && is_small) || node.op->name == "ListRead";
      changes[index(id)] = changed;
      if (has_all && (!changed || is_cheap)) free[index(id)] = Free::copied;
    }
    return free;
  }

  // The implicit variable that counts iterations, or one of the user's; -1: none.
  int iteration_counter() const {
    for (int k = 0; k < w_.variables; ++k)
      if (variable(k).dtype == DType::i64 && counter(k) && counter(k)->step == 1 && start(k) == 0) return k;
    return -1;
  }
  // The implicit list in which the loop saves the value already; -1: none.
  int list_of(const Cut& cut, const Cut::Saved& saved) const {
    for (int k = w_.explicit_variables; k < w_.variables; ++k) {
      const Node& push = w_.body.graph.node(body_output(k).node);
      if (push.op->name == "ListPush" && push.inputs[0] == body_input(k) && cut.is_saved_as(saved, push.inputs[1])) return k;
    }
    return -1;
  }

  // The forward loop's new version.
  void save(const Cut& cut) {
    std::vector<Edge> where;
    std::shared_ptr<SubGraph> body = cut.forward_part(s_.graph, where);
    body->made_from = both_;
    auto condition = std::make_shared<SubGraph>(subgraphs_of(forward_)[0], s_.graph, w_.condition.graph.size());
    condition->made_from = subgraphs_of(forward_)[0];
    Graph::AtSite site(body->graph, forward_.site);
    std::vector<ValueSpec> more;
    auto add = [&](const ValueSpec& spec) {
      const auto place = static_cast<std::ptrdiff_t>(index(w_.variables) + more.size());
      Edge e = body->graph.argument(spec, forward_.site).edge();
      body->inputs.insert(body->inputs.begin() + place, e);
      condition->inputs.insert(condition->inputs.begin() + place, condition->graph.argument(spec, forward_.site).edge());
      more.push_back(spec);
      return body->graph.expr(e);
    };
    count_ = iteration_counter();
    if (count_ < 0) {
      count_ = w_.variables;
      Expr count = add({DType::i64, Shape{}});
      body->outputs.push_back((count + 1).edge());
    }
    for (std::size_t i = 0; i < cut.saved().size(); ++i) {
      const Cut::Saved& saved = cut.saved()[i];
      int k = list_of(cut, saved);
      lists_.push_back(k >= 0 ? k : w_.variables + static_cast<int>(more.size()));
      if (k >= 0) continue;
      Expr list = add(saved.spec.list_of());
      body->outputs.push_back(list_push(list, body->graph.expr(where[i])).edge());
    }
    if (more.empty()) return;
    body->graph.seal();
    condition->graph.seal();
    Attrs attrs = forward_.attrs;
    std::vector<ValueSpec> implicit = w_.implicit;
    implicit.insert(implicit.end(), more.begin(), more.end());
    attrs.set("graphs", make_subgraphs({condition, body}));
    attrs.set("implicit", make_specs_attr(implicit));
    s_.graph.extend(s_.id, attrs, more);
  }

  // In the backward body: a forward value that is given.
  Expr given(Edge e, OuterValues& outside, const Expr& iteration) {
    for (std::size_t i = 0; i < arguments_.size(); ++i)
      if (arguments_[i].edge() == e) return body_->graph.expr(body_->inputs[i + 1]);
    if (auto outer = taken(*both_, e)) return outside.in(0, *body_, *outer, both_->graph.spec(e));
    int i = 0;
    while (body_input(i) != e) ++i;
    if (i >= w_.variables) return outside.in(0, *body_, input(i - w_.variables + w_.explicit_variables), variable(i));
    if (body_output(i) == e) return outside.in(0, *body_, input(i), variable(i));
    const std::int64_t step = counter(i)->step;
    Expr n = iteration;
    if (step != 1) n = n * step;
    if (variable(i).dtype != DType::i64) n = cast(n, variable(i).dtype);
    if (start(i) == 0) return n;
    return n + outside.in(0, *body_, input(i), variable(i));
  }

  ControlCotangents backward(const Cut& cut) {
    const std::string of = w_.body.graph.what();
    body_ = fresh(here_, "the gradient of " + of);
    body_->made_from = both_;
    Graph& g = body_->graph;
    std::vector<ValueSpec> specs{{DType::i64, Shape{}}};
    for (const Expr& a : arguments_) specs.push_back(a.spec());
    for (const Cut::Saved& s : cut.saved()) specs.push_back(s.spec.list_of());
    for (const ValueSpec& spec : specs) body_->inputs.push_back(g.argument(spec, forward_.site).edge());
    OuterValues outside(2);
    {
      Graph::AtSite site(g, forward_.site);
      Expr iteration = g.expr(body_->inputs[0]) - 1;
      body_->outputs.push_back(iteration.edge());
      Exprs restored;
      std::vector<Edge> rests;
      for (std::size_t i = 0; i < cut.saved().size(); ++i) {
        Popped p = list_pop(g.expr(body_->inputs[1 + arguments_.size() + i]), cut.saved()[i].spec);
        restored.push_back(p.value);
        rests.push_back(p.list.edge());
      }
      for (Edge e : cut.backward_part(*body_, [&](Edge x) { return given(x, outside, iteration); }, restored)) body_->outputs.push_back(e);
      body_->outputs.insert(body_->outputs.end(), rests.begin(), rests.end());
    }
    auto condition = fresh(here_, "the condition of the gradient of " + of);
    for (const ValueSpec& spec : specs) condition->inputs.push_back(condition->graph.argument(spec, forward_.site).edge());
    {
      Graph::AtSite site(condition->graph, forward_.site);
      condition->outputs.push_back((condition->graph.expr(condition->inputs[0]) > 0).edge());
    }
    outside.finish(0, *body_);
    outside.finish(1, *condition);
    body_->graph.seal();
    condition->graph.seal();

    WhileParts parts;
    parts.graphs = {condition, body_};
    parts.initial.push_back(at_home(output(count_)));
    for (int k : carried_) parts.initial.push_back(dy(k));
    for (int c : accumulated_) parts.initial.push_back(sum_so_far(c));
    for (std::int32_t s : states_) parts.initial.push_back(here_.zeros(state_spec(s).dtype, state_spec(s).shape));
    for (int k : lists_) parts.initial.push_back(at_home(output(k)));
    for (const Expr& e : outside.values()) parts.captures.push_back(at_home(e));
    parts.parallel_iterations = w_.parallel_iterations;
    parts.name = label();
    return answer(bind_while(here_, parts, forward_.site));
  }

  Expr sum_so_far(int capture) const {
    const int i = w_.explicit_variables + capture;
    const Cotangent& c = s_.arrived[index(i)];
    Expr start = c.is_none() ? zero_cotangent(at_home(input(i))) : c.to_dense();
    return refined(at_home(start), variable(w_.variables + capture));
  }

  ControlCotangents answer(const Exprs& out) const {
    ControlCotangents made = nothing();
    std::size_t next = 1;
    for (int k : carried_) {
      if (k < w_.explicit_variables && s_.needed[index(k)]) made.inputs[index(k)] = refined(out[next], input(k).spec());
      ++next;
    }
    for (int c : accumulated_) {
      const int i = w_.explicit_variables + c;
      made.inputs[index(i)] = refined(out[next++], input(i).spec());
    }
    for (std::int32_t s : states_) made.states[s] = out[next++];
    return made;
  }

  const WhileView w_;
  LoopFlow flow_;
  std::vector<int> carried_;          // variables whose cotangents go through the backward loop
  std::vector<int> accumulated_;      // captures
  std::vector<std::int32_t> states_;  // variables read inside
  std::shared_ptr<SubGraph> both_;    // the body and its gradient
  std::int32_t nodes_ = 0;            // of the body
  Exprs arguments_;                   // of its gradient
  std::vector<Edge> results_;         // one an argument
  int count_ = 0;                     // the forward output that says how many iterations there were
  std::vector<int> lists_;            // the forward outputs that hold saved values
  std::shared_ptr<SubGraph> body_;    // of the backward loop
};

// ---- conditionals

class CaseStep : Step {
 public:
  explicit CaseStep(const ControlStep& s) : Step(s), branches_(subgraphs_of(forward_)) {}

  ControlCotangents run() {
    Flags reached;
    for (const Cotangent& c : s_.cotangents) reached.push_back(!c.is_none());
    ReachedInputs r = reached_inputs(forward_, s_.needed, reached, s_.states);
    for (std::size_t i = 1; i < r.inputs.size(); ++i)
      if (r.inputs[i]) wanted_.push_back(static_cast<int>(i));
    flags_ = r.states;
    states_ = wanted(flags_);
    if (wanted_.empty() && states_.empty()) return nothing();
    for (const auto& branch : branches_) differentiate_branch(branch);
    save();
    return backward();
  }

 private:
  // A branch and its gradient.
  struct Branch {
    std::shared_ptr<SubGraph> both;
    std::map<Edge, Expr> outside;     // arguments of the gradient, and what they are
    std::unique_ptr<Cut> cut;
    std::vector<int> saved_in;        // of each saved value, the forward output
  };

  void differentiate_branch(const std::shared_ptr<const SubGraph>& branch) {
    branches_made_.emplace_back();
    Branch& b = branches_made_.back();
    b.both = std::make_shared<SubGraph>(branch, here_, branch->graph.size());
    b.both->made_from = branch;
    Graph& g = b.both->graph;
    const std::int32_t nodes = g.size();
    Graph::AtSite site(g, forward_.site);
    auto scope = g.scope("gradients");
    auto argument = [&](const Expr& outer) {
      Expr e = g.argument(outer.spec(), forward_.site);
      b.outside.emplace(e.edge(), outer);
      return e;
    };
    std::vector<Edge> xs;
    for (int i : wanted_) xs.push_back(branch->inputs[index(i - 1)]);
    Sweep sweep(g, nodes, xs, flags_);
    for (int i : wanted_)
      if (const Cotangent& c = s_.arrived[index(i)]; !c.is_none()) sweep.seed(branch->inputs[index(i - 1)], argument(at_home(c.to_dense())));
    for (std::size_t o = 0; o < s_.cotangents.size(); ++o) {
      Edge y = branch->outputs[o];
      if (s_.cotangents[o].is_none() || !sweep.activity().is_active(y)) continue;
      sweep.seed(y, refined(argument(dense(o)), g.spec(y)));
    }
    sweep.run();
    std::vector<Edge> results;
    for (Edge x : xs) results.push_back(result(sweep.of(x), g.expr(x)).edge());
    for (std::int32_t s : states_) {
      Cotangent c = sweep.of_state(s);
      results.push_back((c.is_none() ? g.zeros(state_spec(s).dtype, state_spec(s).shape) : c.to_dense()).edge());
    }
    b.cut = std::make_unique<Cut>(b.both, nodes, std::move(results), free_values(*branch));
  }

  // A branch's work is not done again, but for integers that follow from one captured value: of a
  // loop around it that is often a counter, which is not saved either.
  static std::vector<Free> free_values(const SubGraph& branch) {
    const Graph& g = branch.graph;
    std::vector<Free> free(index(g.size()), Free::no);
    for (Edge e : branch.inputs) free[index(e.node)] = Free::given;
    for (std::int32_t id = 0; id < g.size(); ++id) {
      const Node& node = g.node(id);
      if (node.op->name == "Constant") free[index(id)] = Free::copied;
      if (!node.op->pointwise || !is_integer(node.outputs[0].dtype) || !node.outputs[0].shape.is_scalar()) continue;
      int others = 0;
      bool has_all = true;
      for (Edge e : node.inputs) {
        others += g.node(e.node).op->name != "Constant";
        has_all = has_all && free[index(e.node)] != Free::no && g.spec(e).shape.is_scalar();
      }
      if (has_all && others <= 1) free[index(id)] = Free::copied;
    }
    return free;
  }

  // The cotangent of output o, made dense once for all branches.
  Expr dense(std::size_t o) {
    auto [it, is_new] = dense_.emplace(o, Expr());
    if (is_new) it->second = dy(static_cast<int>(o));
    return it->second;
  }

  // The forward node's new version: what a branch saves comes out, and something empty of other branches.
  void save() {
    struct Slot {
      ValueSpec spec;
      std::map<std::size_t, Edge> of;  // a branch's
    };
    std::vector<Slot> slots;
    const int before = static_cast<int>(forward_.outputs.size());
    std::vector<std::shared_ptr<SubGraph>> parts;
    for (std::size_t b = 0; b < branches_.size(); ++b) {
      Branch& branch = branches_made_[b];
      std::vector<Edge> where;
      parts.push_back(branch.cut->forward_part(s_.graph, where));
      parts[b]->made_from = branch.both;
      for (std::size_t i = 0; i < where.size(); ++i) {
        const ValueSpec& spec = branch.cut->saved()[i].spec;
        int o = 0;
        while (o < before && !branch.cut->is_saved_as(branch.cut->saved()[i], branches_[b]->outputs[index(o)])) ++o;
        branch.saved_in.push_back(o);
        if (o < before) continue;
        auto fits = [&](const Slot& s) { return !s.of.count(b) && s.spec.dtype == spec.dtype && s.spec.depth == spec.depth && (!spec.is_list() || s.spec == spec); };
        std::size_t k = static_cast<std::size_t>(std::find_if(slots.begin(), slots.end(), fits) - slots.begin());
        if (k == slots.size()) slots.push_back({spec, {}});
        slots[k].spec = common_spec(slots[k].spec, spec);
        slots[k].of[b] = where[i];
        branch.saved_in.back() = before + static_cast<int>(k);
      }
    }
    if (slots.empty()) return;
    std::vector<ValueSpec> more;
    for (Slot& slot : slots) {
      // Whatever stands for a tensor where there is none is a scalar.
      if (!slot.spec.is_list() && slot.of.size() < branches_.size()) slot.spec = common_spec(slot.spec, {slot.spec.dtype, Shape{}});
      more.push_back(slot.spec);
    }
    std::vector<std::shared_ptr<const SubGraph>> graphs;
    for (std::size_t b = 0; b < parts.size(); ++b) {
      Graph& g = parts[b]->graph;
      Graph::AtSite site(g, forward_.site);
      for (const Slot& slot : slots) {
        auto it = slot.of.find(b);
        parts[b]->outputs.push_back(it != slot.of.end() ? it->second : empty(g, slot.spec).edge());
      }
      g.seal();
      graphs.push_back(parts[b]);
    }
    Attrs attrs = forward_.attrs;
    attrs.set("graphs", make_subgraphs(std::move(graphs)));
    s_.graph.extend(s_.id, attrs, more);
  }
  static Expr empty(Graph& g, const ValueSpec& spec) {
    if (spec.is_list()) return g.bind(find_op("ListEmpty"), {}, attrs_of(spec), Site())[0];
    return g.constant(Tensor::scalar_as(spec.dtype, 0));
  }

  ControlCotangents backward() {
    OuterValues outside(branches_.size());
    std::vector<std::shared_ptr<SubGraph>> made;
    for (std::size_t b = 0; b < branches_.size(); ++b) {
      Branch& branch = branches_made_[b];
      made.push_back(fresh(here_, "the gradient of " + branches_[b]->graph.what()));
      SubGraph& sub = *made[b];
      sub.made_from = branch.both;
      Graph::AtSite site(sub.graph, forward_.site);
      Exprs restored;
      for (std::size_t i = 0; i < branch.saved_in.size(); ++i) {
        const int o = branch.saved_in[i];
        restored.push_back(refined(outside.in(b, sub, output(o), output(o).spec()), branch.cut->saved()[i].spec));
      }
      auto given = [&](Edge e) {
        if (auto it = branch.outside.find(e); it != branch.outside.end()) return outside.in(b, sub, it->second, it->second.spec());
        if (auto outer = taken(*branch.both, e)) return outside.in(b, sub, *outer, branch.both->graph.spec(e));
        const auto& inputs = branches_[b]->inputs;
        const auto i = static_cast<int>(std::find(inputs.begin(), inputs.end(), e) - inputs.begin());
        return outside.in(b, sub, input(i + 1), branch.both->graph.spec(e));
      };
      sub.outputs = branch.cut->backward_part(sub, given, restored);
    }
    std::vector<std::shared_ptr<const SubGraph>> graphs;
    for (std::size_t b = 0; b < made.size(); ++b) {
      outside.finish(b, *made[b]);
      made[b]->graph.seal();
      graphs.push_back(made[b]);
    }
    Exprs captures;
    for (const Expr& e : outside.values()) captures.push_back(at_home(e));
    Exprs out = bind_case(here_, at_home(input(0)), std::move(graphs), captures, label(), {}, forward_.site);
    ControlCotangents answer = nothing();
    std::size_t next = 0;
    for (int i : wanted_) answer.inputs[index(i)] = refined(out[next++], input(i).spec());
    for (std::int32_t s : states_) answer.states[s] = refined(out[next++], state_spec(s));
    return answer;
  }

  std::span<const std::shared_ptr<const SubGraph>> branches_;
  std::vector<int> wanted_;  // inputs whose cotangent some branch yields
  Flags flags_;              // states, the same
  std::vector<std::int32_t> states_;
  std::map<std::size_t, Expr> dense_;
  std::vector<Branch> branches_made_;
};

}  // namespace

std::size_t captures_begin(const Node& node) {
  return node.op->name == "While" ? static_cast<std::size_t>(node.attrs.get<std::int64_t>("variables")) : 1;
}

ControlCotangents differentiate_control(const ControlStep& step) {
  const std::string& op = step.graph.node(step.id).op->name;
  if (op == "While") return WhileStep(step).run();
  if (op == "Case") return CaseStep(step).run();
  throw Error(Code::unimplemented, op + " has no gradient");
}

}  // namespace troupe
