// The gradient of a conditional. See control.hpp.
#include <algorithm>
#include <tuple>

#include <troupe/autodiff/control_step.hpp>
#include <troupe/autodiff/forward_backward_split.hpp>
#include <troupe/autodiff/sweep.hpp>
#include <troupe/controlflow/invariant_nodes.hpp>
#include <troupe/controlflow/list_ops.hpp>
#include <troupe/functions.hpp>

namespace troupe::control {
namespace {

class CaseStep : Step {
 public:
  explicit CaseStep(const ControlStep& s)
      : Step(s), branches_(subgraphs_of(forward_)),
        recomputes_(forward_.attrs.get_or<bool>("recompute", false)) {}

  ControlCotangents run() {
    Flags reached;
    for (const Cotangent& c : s_.cotangents) reached.push_back(!c.is_none());
    ReachedInputs r = s_.request.flows.reached_inputs(forward_, s_.needed, reached, s_.states);
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
    std::map<Edge, Expr> outside;  // arguments of the gradient, and their outer values
    std::unique_ptr<ForwardBackwardSplit> cut;
    std::vector<int> saved_in;  // by saved value: the forward output
  };

  void differentiate_branch(const std::shared_ptr<const SubGraph>& branch) {
    branches_made_.emplace_back();
    Branch& b = branches_made_.back();
    b.both = std::make_shared<SubGraph>(branch, here_, branch->graph.size());
    b.both->made_from = branch;
    Graph& g = b.both->graph;
    const std::int32_t nodes = g.size();
    Graph::AtSite site(g, forward_.site);
    auto scope = g.node_scope("gradients");
    auto argument = [&](const Expr& outer) {
      Expr e = g.argument(outer.spec(), forward_.site);
      b.outside.emplace(e.edge(), outer);
      return e;
    };
    std::vector<Edge> xs;
    for (int i : wanted_) xs.push_back(branch->inputs[at(i - 1)]);
    Sweep sweep(g, nodes, xs, flags_, s_.request);
    for (int i : wanted_)
      if (const Cotangent& c = s_.arrived[at(i)]; !c.is_none())
        sweep.seed(branch->inputs[at(i - 1)], argument(at_home(c.to_dense())));
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
      results.push_back(
          (c.is_none() ? g.zeros(state_spec(s).dtype, state_spec(s).shape) : c.to_dense()).edge());
    }
    b.cut = std::make_unique<ForwardBackwardSplit>(
        b.both, nodes, std::move(results),
        recomputes_ ? recomputed_values(*branch) : free_values(*branch));
  }

  // A branch's work is not done again, but for integers that follow from one captured value: of a
  // loop around it that is often a counter, which is not saved either.
  static std::vector<Recompute> free_values(const SubGraph& branch) {
    const Graph& g = branch.graph;
    std::vector<Recompute> free(at(g.size()), Recompute::no);
    for (Edge e : branch.inputs) free[at(e.node)] = Recompute::given;
    for (std::int32_t id = 0; id < g.size(); ++id) {
      const Node& node = g.node(id);
      if (node.op->name == "Constant") free[at(id)] = Recompute::copied;
      if (!node.op->pointwise || !is_integer(node.outputs[0].dtype) ||
          !node.outputs[0].shape.is_scalar())
        continue;
      int others = 0;
      bool has_all = true;
      for (Edge e : node.inputs) {
        others += g.node(e.node).op->name != "Constant";
        has_all = has_all && free[at(e.node)] != Recompute::no && g.spec(e).shape.is_scalar();
      }
      if (has_all && others <= 1) free[at(id)] = Recompute::copied;
    }
    return free;
  }

  // All values of a branch whose work is done again. Draws and what effects yield are saved: a
  // backward loop has other iterations, and a backward program other steps. A draw that is compared
  // alone is saved as a bool.
  static std::vector<Recompute> recomputed_values(const SubGraph& branch) {
    const Graph& g = branch.graph;
    std::vector<Recompute> free(at(g.size()), Recompute::no);
    for (Edge e : branch.inputs) free[at(e.node)] = Recompute::given;
    for (std::int32_t id = 0; id < g.size(); ++id) {
      const Node& node = g.node(id);
      const bool is_of_draw = node.op->pointwise && node.outputs[0].dtype == DType::boolean &&
                              std::any_of(node.inputs.begin(), node.inputs.end(),
                                          [&](Edge e) { return g.node(e.node).op->random; });
      const bool is_pure =
          node.op->evaluate ? !has_effect(node) && effects_of(node).empty() : node.op->is_pure();
      const bool is_same = is_pure && !has_draws(node) && node.controls.empty();
      if (free[at(id)] == Recompute::no && is_same && !is_of_draw && node.op->name != "Input")
        free[at(id)] = Recompute::copied;
    }
    return free;
  }

  // The captured values, once all of them are there: the work is not done again before the
  // cotangents arrive, and its nodes are not merged with those of the forward branch.
  static Exprs together(const Exprs& captures, const Site& site) {
    Exprs waiting, out = captures;
    for (const Expr& e : captures)
      if (!e.spec().is_list()) waiting.push_back(e);
    if (waiting.empty()) return out;
    const Exprs come = waiting[0].reader().bind(find_op("WaitForAll"), waiting, {}, site);
    std::size_t next = 0;
    for (Expr& e : out)
      if (!e.spec().is_list()) e = come[next++];
    return out;
  }

  // The cotangent of output o, made dense once for all branches.
  Expr dense(std::size_t o) {
    auto [it, is_new] = dense_.emplace(o, Expr());
    if (is_new) it->second = dy(static_cast<int>(o));
    return it->second;
  }

  // Makes the forward node's new version, which yields the saved values of a branch, and empty
  // values for other branches.
  void save() {
    struct Slot {
      ValueSpec spec;
      std::map<std::size_t, Edge> of;  // a branch's
    };
    std::vector<Slot> slots;
    // A branch's n-th value of a kind goes into the n-th slot of that kind.
    using Kind = std::tuple<DType, int, std::string>;
    std::map<Kind, std::vector<std::size_t>> slots_of;
    const int before = static_cast<int>(forward_.outputs.size());
    std::vector<std::shared_ptr<SubGraph>> parts;
    for (std::size_t b = 0; b < branches_.size(); ++b) {
      Branch& branch = branches_made_[b];
      std::vector<Edge> where;
      parts.push_back(branch.cut->forward_part(s_.graph, where));
      parts[b]->made_from = branch.both;
      std::map<Kind, std::size_t> used;
      for (std::size_t i = 0; i < where.size(); ++i) {
        const ValueSpec& spec = branch.cut->saved()[i].spec;
        int o = 0;
        while (o < before &&
               !branch.cut->is_saved_as(branch.cut->saved()[i], branches_[b]->outputs[at(o)]))
          ++o;
        branch.saved_in.push_back(o);
        if (o < before) continue;
        const Kind kind{spec.dtype, spec.depth, spec.is_list() ? spec.text() : std::string()};
        std::vector<std::size_t>& all = slots_of[kind];
        const std::size_t n = used[kind]++;
        if (n == all.size()) {
          all.push_back(slots.size());
          slots.push_back({spec, {}});
        }
        const std::size_t k = all[n];
        slots[k].spec = common_spec(slots[k].spec, spec);
        slots[k].of[b] = where[i];
        branch.saved_in.back() = before + static_cast<int>(k);
      }
    }
    if (slots.empty()) return;
    std::vector<ValueSpec> more;
    for (Slot& slot : slots) {
      // A branch without the tensor yields a scalar in its place.
      if (!slot.spec.is_list() && slot.of.size() < branches_.size())
        slot.spec = common_spec(slot.spec, {slot.spec.dtype, Shape{}});
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
        restored.push_back(
            refined(outside.in(b, sub, output(o), output(o).spec()), branch.cut->saved()[i].spec));
      }
      auto given = [&](Edge e) {
        if (auto it = branch.outside.find(e); it != branch.outside.end())
          return outside.in(b, sub, it->second, it->second.spec());
        if (auto outer = taken(*branch.both, e))
          return outside.in(b, sub, *outer, branch.both->graph.spec(e));
        const auto& inputs = branches_[b]->inputs;
        const auto i =
            static_cast<int>(std::find(inputs.begin(), inputs.end(), e) - inputs.begin());
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
    if (recomputes_) captures = together(captures, forward_.site);
    Exprs out = bind_case(here_, at_home(input(0)), std::move(graphs), captures, label(), {},
                          forward_.site);
    ControlCotangents answer = nothing();
    std::size_t next = 0;
    for (int i : wanted_) answer.inputs[at(i)] = refined(out[next++], input(i).spec());
    for (std::int32_t s : states_) answer.states[s] = refined(out[next++], state_spec(s));
    return answer;
  }

  std::span<const std::shared_ptr<const SubGraph>> branches_;
  const bool recomputes_;
  std::vector<int> wanted_;  // inputs whose cotangent some branch yields
  Flags flags_;              // states, the same
  std::vector<std::int32_t> states_;
  std::map<std::size_t, Expr> dense_;
  std::vector<Branch> branches_made_;
};

}  // namespace

ControlCotangents differentiate_case(const ControlStep& step) { return CaseStep(step).run(); }

}  // namespace troupe::control
