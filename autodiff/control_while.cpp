// The gradient of a loop. See control.hpp.
#include <algorithm>

#include <troupe/autodiff/control_step.hpp>
#include <troupe/autodiff/forward_backward_split.hpp>
#include <troupe/autodiff/products.hpp>
#include <troupe/autodiff/sweep.hpp>
#include <troupe/controlflow/list.hpp>
#include <troupe/controlflow/list_ops.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/specs_attr.hpp>

namespace troupe::control {
namespace {

class WhileStep : Step {
 public:
  explicit WhileStep(const ControlStep& s) : Step(s), w_(forward_) {}

  ControlCotangents run() {
    if (!w_.back_prop) return nothing();
    Flags reached;
    for (const Cotangent& c : s_.cotangents) reached.push_back(!c.is_none());
    flow_ = s_.request.flows.loop_flow(forward_, s_.needed, reached, s_.states);
    for (int k = 0; k < w_.variables; ++k)
      if (flow_.reached[at(k)]) carried_.push_back(k);
    for (int c = 0; c < w_.captures; ++c)
      if (flow_.reached[at(w_.variables + c)]) accumulated_.push_back(c);
    states_ = wanted(flow_.states);
    if (carried_.empty()) return nothing();
    differentiate_body();
    ForwardBackwardSplit cut(both_, nodes_, results_, free_values());
    save(cut);
    return backward(cut);
  }

 private:
  static Edge without_refinement(const Graph& g, Edge e) {
    while (g.node(e.node).op->name == "EnsureShape") e = g.node(e.node).inputs[0];
    return e;
  }
  Edge body_input(int i) const { return w_.body.inputs[at(i)]; }
  Edge body_output(int k) const { return w_.body.outputs[at(k)]; }
  ValueSpec variable(int i) const { return w_.body.graph.spec(body_input(i)); }

  // The cotangents of the variables go through the backward loop, and with them a sum for each
  // captured value and each state.
  void differentiate_body() {
    both_ = std::make_shared<SubGraph>(subgraphs_of(forward_)[1], here_, w_.body.graph.size());
    both_->made_from = subgraphs_of(forward_)[1];
    nodes_ = both_->graph.size();
    Graph& g = both_->graph;
    Graph::AtSite site(g, forward_.site);
    auto scope = g.node_scope("gradients");
    for (int k : carried_) arguments_.push_back(g.argument(variable(k), forward_.site));
    for (int c : accumulated_)
      arguments_.push_back(g.argument(variable(w_.variables + c), forward_.site));
    for (std::int32_t s : states_) arguments_.push_back(g.argument(state_spec(s), forward_.site));
    std::vector<Edge> xs;
    for (int k : carried_) xs.push_back(body_input(k));
    for (int c : accumulated_) xs.push_back(body_input(w_.variables + c));
    Sweep sweep(g, nodes_, xs, flow_.states, s_.request);
    std::size_t next = carried_.size();
    // The sums come first, so that later cotangents are added to them in place.
    for (int c : accumulated_) sweep.seed(body_input(w_.variables + c), arguments_[next++]);
    for (std::int32_t s : states_) sweep.seed_state(s, arguments_[next++]);
    for (std::size_t i = 0; i < carried_.size(); ++i) {
      Edge y = body_output(carried_[i]);
      if (sweep.activity().is_active(y)) sweep.seed(y, refined(arguments_[i], g.spec(y)));
    }
    sweep.run();
    for (Edge x : xs) results_.push_back(result(sweep.of(x), g.expr(x)).edge());
    for (std::int32_t s : states_)
      results_.push_back(refined(sweep.of_state(s).to_dense(), state_spec(s)).edge());
    set_products_aside();
  }

  // Removes the products from each sum: their operands become results of their own.
  void set_products_aside() {
    Graph& g = both_->graph;
    auto changes = [&](std::int32_t id) {
      for (int c = 0; c < w_.captures; ++c)
        if (body_input(w_.variables + c).node == id) return false;
      return true;
    };
    std::vector<Edge> operands;
    for (std::size_t i = carried_.size(); i < arguments_.size(); ++i) {
      const TermsOfSum terms = terms_of(g, results_[i], arguments_[i].edge(), changes);
      if (terms.products.empty()) continue;
      Expr rest = arguments_[i];
      for (Edge e : terms.others) rest = rest + g.expr(e);
      results_[i] = refined(rest, arguments_[i].spec()).edge();
      for (const Product& p : terms.products) {
        products_.push_back({i, p.device});
        operands.insert(operands.end(), {p.a, p.b});
      }
    }
    results_.insert(results_.end(), operands.begin(), operands.end());
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
      if (next.inputs[own] != body_input(k) || other.op->name != "Constant" || (is_sub && own == 1))
        continue;
      const Tensor& by = other.attrs.get<Tensor>("value");
      if (!by.shape().is_scalar()) continue;
      auto step = static_cast<std::int64_t>(by.at(0));
      return Counter{is_add ? step : -step};
    }
    return {};
  }
  // True if counter k is known to start as 0. Then no feed may replace the 0.
  bool counts_from_zero(int k) const {
    if (k >= w_.explicit_variables) return true;
    const Node& first = s_.graph.node(forward_.inputs[at(k)].node);
    if (first.op->name != "Constant" || first.attrs.get<Tensor>("value").at(0) != 0) return false;
    s_.graph.build_on(forward_.inputs[at(k)]);
    return true;
  }

  // Finds the forward nodes that are not saved. Given: captures, counters and variables that do not
  // change. Copied: nodes on such values, if they are the same in every iteration, at any cost, or
  // scalar pointwise ops or list reads, which cost no more than reading a saved value.
  std::vector<Recompute> free_values() const {
    std::vector<Recompute> free(at(nodes_), Recompute::no);
    Flags changes(at(nodes_), 0);  // from iteration to iteration
    const Graph& g = w_.body.graph;
    for (int k = 0; k < w_.variables; ++k) {
      const bool is_same = body_output(k) == body_input(k), counts = counter(k).has_value();
      if (is_same || counts) free[at(body_input(k).node)] = Recompute::given;
      changes[at(body_input(k).node)] = !is_same;
    }
    for (int c = 0; c < w_.captures; ++c)
      free[at(body_input(w_.variables + c).node)] = Recompute::given;
    for (std::int32_t id = 0; id < nodes_; ++id) {
      const Node& node = g.node(id);
      if (node.op->name == "Input" || !node.op->is_pure() || node.op->evaluate) continue;
      bool has_all = true, changed = false, is_small = true;
      for (Edge e : node.inputs) {
        has_all = has_all && free[at(e.node)] != Recompute::no;
        changed = changed || changes[at(e.node)];
      }
      for (const ValueSpec& s : node.outputs)
        is_small = is_small && !s.is_list() && s.shape.is_scalar();
      const bool is_cheap = (node.op->pointwise && is_small) || node.op->name == "ListRead";
      changes[at(id)] = changed;
      if (has_all && (!changed || is_cheap)) free[at(id)] = Recompute::copied;
    }
    return free;
  }

  // The implicit variable that counts iterations, or one of the user's; -1: none.
  int iteration_counter() const {
    for (int k = 0; k < w_.variables; ++k)
      if (variable(k).dtype == DType::i64 && counter(k) && counter(k)->step == 1 &&
          counts_from_zero(k))
        return k;
    return -1;
  }
  // The implicit list in which the loop saves the value already; -1: none.
  int list_of(const ForwardBackwardSplit& cut, const ForwardBackwardSplit::Saved& saved) const {
    for (int k = w_.explicit_variables; k < w_.variables; ++k) {
      const Node& push = w_.body.graph.node(body_output(k).node);
      if (push.op->name == "ListPush" && push.inputs[0] == body_input(k) &&
          cut.is_saved_as(saved, push.inputs[1]))
        return k;
    }
    return -1;
  }

  // The forward loop's new version.
  void save(const ForwardBackwardSplit& cut) {
    std::vector<Edge> where;
    std::shared_ptr<SubGraph> body = cut.forward_part(s_.graph, where);
    body->made_from = both_;
    auto condition =
        std::make_shared<SubGraph>(subgraphs_of(forward_)[0], s_.graph, w_.condition.graph.size());
    condition->made_from = subgraphs_of(forward_)[0];
    Graph::AtSite site(body->graph, forward_.site);
    std::vector<ValueSpec> more;
    auto add = [&](const ValueSpec& spec) {
      const auto place = static_cast<std::ptrdiff_t>(at(w_.variables) + more.size());
      Edge e = body->graph.argument(spec, forward_.site).edge();
      body->inputs.insert(body->inputs.begin() + place, e);
      condition->inputs.insert(condition->inputs.begin() + place,
                               condition->graph.argument(spec, forward_.site).edge());
      more.push_back(spec);
      return body->graph.expr(e);
    };
    count_ = iteration_counter();
    if (count_ >= 0) s_.graph.build_on(Edge{s_.id, count_});
    else {
      count_ = w_.variables;
      Expr count = add({DType::i64, Shape{}});
      body->outputs.push_back((count + 1).edge());
    }
    for (std::size_t i = 0; i < cut.saved().size(); ++i) {
      const ForwardBackwardSplit::Saved& saved = cut.saved()[i];
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
    if (i >= w_.variables)
      return outside.in(0, *body_, input(i - w_.variables + w_.explicit_variables), variable(i));
    if (body_output(i) == e) return outside.in(0, *body_, input(i), variable(i));
    const std::int64_t step = counter(i)->step;
    Expr n = iteration;
    if (step != 1) n = n * step;
    if (variable(i).dtype != DType::i64) n = cast(n, variable(i).dtype);
    if (counts_from_zero(i)) return n;
    return n + outside.in(0, *body_, input(i), variable(i));
  }

  // The place of a product's operand. Lists of operands are in the order of the iterations.
  struct OperandPlace {
    // an own list, a list that the forward loop saves, a list that is a sum in any case
    enum From { list, saved, sum } from = list;
    std::size_t which = 0;  // index among the own lists, `lists_` or the sums
  };

  OperandPlace place_of(Edge e, const ForwardBackwardSplit& cut) const {
    for (std::size_t i = 0; i < cut.saved().size(); ++i)
      if (!cut.saved()[i].is_shape && cut.saved()[i].value == e) return {OperandPlace::saved, i};
    const Graph& g = both_->graph;
    for (std::size_t i = carried_.size(); i < carried_.size() + accumulated_.size(); ++i) {
      const Node& put = g.node(without_refinement(g, results_[i]).node);
      if (put.op->name == "ListAccumulate" && put.inputs[0] == arguments_[i].edge() &&
          without_refinement(g, put.inputs[2]) == without_refinement(g, e) &&
          counts_iterations(put.inputs[1]) && starts_as_zero(i) &&
          tells_columns(arguments_[i].spec()))
        return {OperandPlace::sum, i};
    }
    return {};
  }
  // True if the spec has the width of a list's elements, which are missing without iterations.
  static bool tells_columns(const ValueSpec& list) {
    return list.shape.has_rank() && list.shape.rank() == 2 && list.shape[1] >= 0;
  }
  bool counts_iterations(Edge e) const {
    for (int k = 0; k < w_.variables; ++k)
      if (body_input(k) == e) return counter(k) && counter(k)->step == 1 && counts_from_zero(k);
    return false;
  }

  void place_operands(const ForwardBackwardSplit& cut) {
    std::size_t own = 0;
    for (std::size_t i = arguments_.size(); i < results_.size(); ++i) {
      OperandPlace o = place_of(results_[i], cut);
      if (o.from == OperandPlace::list) o.which = own++;
      operands_.push_back(o);
    }
  }
  /// Operand i, of all iterations.
  Expr operand(std::size_t i, const Exprs& out) const {
    const OperandPlace& o = operands_[i];
    if (o.from == OperandPlace::saved) return at_home(output(lists_[o.which]));
    return out[1 + (o.from == OperandPlace::sum ? o.which : arguments_.size() + o.which)];
  }

  ControlCotangents backward(const ForwardBackwardSplit& cut) {
    place_operands(cut);
    const std::string of = w_.body.graph.what();
    body_ = fresh(here_, "the gradient of " + of);
    body_->made_from = both_;
    Graph& g = body_->graph;
    std::vector<ValueSpec> specs{{DType::i64, Shape{}}};
    for (const Expr& a : arguments_) specs.push_back(a.spec());
    for (std::size_t i = 0; i < operands_.size(); ++i)
      if (operands_[i].from == OperandPlace::list)
        specs.push_back(both_->graph.spec(results_[arguments_.size() + i]).list_of());
    const std::size_t first_list = specs.size();
    for (const ForwardBackwardSplit::Saved& s : cut.saved()) specs.push_back(s.spec.list_of());
    for (const ValueSpec& spec : specs)
      body_->inputs.push_back(g.argument(spec, forward_.site).edge());
    OuterValues outside(2);
    {
      Graph::AtSite site(g, forward_.site);
      Expr iteration = g.expr(body_->inputs[0]) - 1;
      body_->outputs.push_back(iteration.edge());
      Exprs restored;
      std::vector<Edge> rests;
      for (std::size_t i = 0; i < cut.saved().size(); ++i) {
        Popped p = list_pop(g.expr(body_->inputs[first_list + i]), cut.saved()[i].spec);
        restored.push_back(p.value);
        rests.push_back(p.list.edge());
      }
      const std::vector<Edge> made = cut.backward_part(
          *body_, [&](Edge x) { return given(x, outside, iteration); }, restored);
      body_->outputs.insert(body_->outputs.end(), made.begin(),
                            made.begin() + static_cast<std::ptrdiff_t>(arguments_.size()));
      for (std::size_t i = 0; i < operands_.size(); ++i) {
        if (operands_[i].from != OperandPlace::list) continue;
        // the variable that it goes to
        const Expr list = g.expr(body_->inputs[body_->outputs.size()]);
        body_->outputs.push_back(
            bind1("ListPut", {list, iteration, g.expr(made[arguments_.size() + i])}).edge());
      }
      body_->outputs.insert(body_->outputs.end(), rests.begin(), rests.end());
    }
    auto condition = fresh(here_, "the condition of the gradient of " + of);
    for (const ValueSpec& spec : specs)
      condition->inputs.push_back(condition->graph.argument(spec, forward_.site).edge());
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
    for (std::int32_t s : states_)
      parts.initial.push_back(here_.zeros(state_spec(s).dtype, state_spec(s).shape));
    for (std::size_t i = 0; i < operands_.size(); ++i)
      if (operands_[i].from == OperandPlace::list)
        parts.initial.push_back(
            list_of_saved(here_, both_->graph.spec(results_[arguments_.size() + i])));
    for (int k : lists_) parts.initial.push_back(at_home(output(k)));
    for (const Expr& e : outside.values()) parts.captures.push_back(at_home(e));
    parts.parallel_iterations = w_.parallel_iterations;
    parts.name = label();
    return answer(bind_while(here_, parts, forward_.site));
  }

  Expr sum_so_far(int capture) const {
    const int i = w_.explicit_variables + capture;
    const Cotangent& c = s_.arrived[at(i)];
    Expr start = c.is_none() ? zero_cotangent(at_home(input(i))) : c.to_dense();
    return refined(at_home(start), variable(w_.variables + capture));
  }

  ControlCotangents answer(const Exprs& out) const {
    ControlCotangents made = nothing();
    std::size_t next = 0;
    for (int k : carried_) {
      if (k < w_.explicit_variables && s_.needed[at(k)])
        made.inputs[at(k)] = refined(out[next + 1], input(k).spec());
      ++next;
    }
    for (int c : accumulated_) {
      const int i = w_.explicit_variables + c;
      made.inputs[at(i)] = refined(total(next++, out), input(i).spec());
    }
    for (std::int32_t s : states_) made.states[s] = refined(total(next++, out), state_spec(s));
    return made;
  }

  // Returns sum i: the loop's own sum plus the products that were removed from it.
  Expr total(std::size_t i, const Exprs& out) const {
    Expr sum = out[1 + i];
    // Zero and no terms: the products are all.
    bool is_nothing = results_[i] == arguments_[i].edge() && starts_as_zero(i);
    for (std::size_t p = 0; p < products_.size(); ++p) {
      if (products_[p].sum != i) continue;
      auto device = here_.on_device(products_[p].device);
      Expr product = sum_of_products(operand(2 * p, out), operand(2 * p + 1, out));
      sum = std::exchange(is_nothing, false) ? product : sum + product;
    }
    return sum;
  }
  bool starts_as_zero(std::size_t i) const {
    const std::size_t c = i - carried_.size();
    return c >= accumulated_.size() ||
           s_.arrived[at(w_.explicit_variables + accumulated_[c])].is_none();
  }

  const WhileView w_;
  LoopFlow flow_;
  std::vector<int> carried_;          // variables whose cotangents go through the backward loop
  std::vector<int> accumulated_;      // captures
  std::vector<std::int32_t> states_;  // variables read inside
  std::shared_ptr<SubGraph> both_;    // the body and its gradient
  std::int32_t nodes_ = 0;            // number of the body's nodes
  Exprs arguments_;                   // arguments of its gradient
  std::vector<Edge> results_;         // one an argument; then both operands of each product
  struct SetAside {
    std::size_t sum;  // the argument
    std::string device;
  };
  std::vector<SetAside> products_;
  std::vector<OperandPlace> operands_;  // two of each product
  int count_ = 0;                       // the forward output with the number of iterations
  std::vector<int> lists_;              // the forward outputs that hold saved values
  std::shared_ptr<SubGraph> body_;      // the backward loop's
};

}  // namespace

ControlCotangents differentiate_while(const ControlStep& step) { return WhileStep(step).run(); }

}  // namespace troupe::control
