// The gradient of a call: a call of the function's gradient, which is a function. See control.hpp.
//
//   f(x) ─► y          becomes   f'(x) ─► y, saved        and   f/gradient(dy, saved) ─► dx
//
// The graph shows f' under the name f.
// `saved` is one list of any kind: the values of f's body that the gradient needs, and for a call
// of f in it the list that the inner call saved. Both functions are declared before f's body is
// differentiated, so that the calls in it find them.
#include <algorithm>

#include <fmt/format.h>

#include <troupe/autodiff/control_step.hpp>
#include <troupe/autodiff/forward_backward_split.hpp>
#include <troupe/autodiff/sweep.hpp>
#include <troupe/controlflow/list.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/function_def.hpp>

namespace troupe::control {
namespace {

/// A function that saves values, and the gradient that takes them.
struct Pair {
  const FunctionDef* saving = nullptr;
  const FunctionDef* gradient = nullptr;
};

/// The values whose gradient is wanted, and the results that have cotangents.
struct Wish {
  Flags inputs, outputs, states;

  std::string text() const {
    std::string out;
    for (const Flags* flags : {&inputs, &outputs, &states}) {
      // a later version has more outputs
      const auto last = std::find(flags->rbegin(), flags->rend(), 1).base();
      for (auto f = flags->begin(); f != last; ++f) out += *f ? '1' : '0';
      out += '/';
    }
    return out;
  }
};

// Makes the pair of a function. `asked_by` names a call that needs it. `unfinished`: the saving
// function that a failed request has left without a body, which gets one now; else null.
class Differentiation final : public FunctionGradient {
 public:
  Differentiation(Graph& root, Request& request, const FunctionDef& f, const Wish& wish,
                  std::string asked_by, const FunctionDef* unfinished = nullptr)
      : root_(root), request_(request), f_(f), wish_(wish), asked_by_(std::move(asked_by)),
        unfinished_(unfinished) {
    if (!f.body)
      throw Error(
          Code::failed_precondition,
          fmt::format("function '{}' ({}) has no body yet; ask for its gradient once it is defined",
                      f.name, f.site.text()));
  }

  /// Declares the pair.
  Pair declared() {
    declare();
    return {saving_, gradient_};
  }

  void differentiate() override {
    try {
      differentiate_body();
    } catch (const Error& e) {
      throw Error(e.code(), fmt::format("the gradient of {}: {}", asked_by_, e.what()));
    }
  }
  void define() override {
    ForwardBackwardSplit cut(both_, f_.body->graph.size(), results_, free_values());
    define_saving(cut);
    define_gradient(cut);
    both_.reset();
  }
  Graph& root() const override { return root_; }

 private:
  FunctionDef& add(std::string name) {
    auto made = std::make_shared<FunctionDef>();
    made->name = std::move(name);
    made->site = f_.site;
    return root_.add_function(std::move(made));
  }

  void declare() {
    for (const auto& known : root_.functions())
      if (known.get() == unfinished_) saving_ = known.get();
    if (!unfinished_) {
      saving_ = &add(f_.name);
      saving_->base = &f_;
      saving_->parameters = f_.parameters;
      saving_->results = f_.results;
      saving_->results.push_back(any_list());
      saving_->captured = f_.captured;
    }
    gradient_ = &add(f_.name + "/gradient");
    for (std::size_t o = 0; o < f_.results.size(); ++o)
      if (wish_.outputs[o]) gradient_->parameters.push_back(f_.results[o]);
    gradient_->parameters.push_back(any_list());
    for (std::size_t i = 0; i < f_.parameters.size(); ++i)
      if (wish_.inputs[i]) gradient_->results.push_back(f_.parameters[i]);
    for (std::size_t s = 0; s < wish_.states.size(); ++s)
      if (wish_.states[s]) gradient_->results.push_back(root_.states()[s].values[0]);
    for (const auto& known : root_.functions())
      if (known.get() == &f_) known->derived[wish_.text()] = {saving_, gradient_};
  }

  void differentiate_body() {
    both_ = std::make_shared<SubGraph>(f_.body, root_, f_.body->graph.size());
    both_->made_from = f_.body;
    Graph& g = both_->graph;
    Graph::AtSite site(g, f_.site);
    auto scope = g.node_scope("gradients");
    std::vector<Edge> xs;
    for (std::size_t i = 0; i < f_.parameters.size(); ++i)
      if (wish_.inputs[i]) xs.push_back(f_.body->inputs[i]);
    Sweep sweep(g, f_.body->graph.size(), xs, wish_.states, request_);
    for (std::size_t o = 0; o < f_.results.size(); ++o) {
      if (!wish_.outputs[o]) continue;
      arguments_.push_back(g.argument(f_.results[o], f_.site));
      const Edge y = f_.body->outputs[o];
      if (sweep.activity().is_active(y)) sweep.seed(y, refined(arguments_.back(), g.spec(y)));
    }
    sweep.run();
    for (Edge x : xs)
      results_.push_back(refined(zero_or(sweep.of(x), g.expr(x)), g.spec(x)).edge());
    for (std::size_t s = 0; s < wish_.states.size(); ++s) {
      if (!wish_.states[s]) continue;
      const ValueSpec& spec = root_.states()[s].values[0];
      Cotangent c = sweep.of_state(static_cast<std::int32_t>(s));
      results_.push_back(
          refined(c.is_none() ? g.zeros(spec.dtype, spec.shape) : c.to_dense(), spec).edge());
    }
  }
  static Expr zero_or(const Cotangent& c, const Expr& x) {
    return c.is_none() ? zero_cotangent(x) : c.to_dense();
  }

  // Only constants are computed again, because the call's arguments are no longer available.
  std::vector<Recompute> free_values() const {
    std::vector<Recompute> free;
    for (const Node& node : f_.body->graph.nodes())
      free.push_back(node.op->name == "Constant" ? Recompute::copied : Recompute::no);
    return free;
  }

  void define_saving(const ForwardBackwardSplit& cut) {
    std::vector<Edge> where;
    std::shared_ptr<SubGraph> body = cut.forward_part(root_, where);
    body->made_from = both_;
    Graph::AtSite site(body->graph, f_.site);
    Expr saved = list_of_any(body->graph);
    for (Edge e : where) saved = list_push(saved, body->graph.expr(e));
    body->outputs.push_back(saved.edge());
    body->graph.seal();
    root_.define(*saving_, body);
  }

  void define_gradient(const ForwardBackwardSplit& cut) {
    auto body = std::make_shared<SubGraph>(f_.body, root_, 0);  // copies no nodes
    body->made_from = both_;
    body->inputs.clear();
    Graph& g = body->graph;
    Graph::AtSite site(g, f_.site);
    for (const ValueSpec& spec : gradient_->parameters)
      body->inputs.push_back(g.argument(spec, f_.site).edge());
    const Expr saved = g.expr(body->inputs.back());
    Exprs restored;
    for (std::size_t i = 0; i < cut.saved().size(); ++i)
      restored.push_back(
          list_read(saved, g.constant(static_cast<std::int64_t>(i)), cut.saved()[i].spec));
    auto given = [&](Edge e) {
      const auto same = [&](const Expr& a) { return a.edge() == e; };
      const auto it = std::find_if(arguments_.begin(), arguments_.end(), same);
      if (it == arguments_.end())
        throw Error(Code::internal,
                    both_->graph.describe(e.node) + " is no argument of the gradient");
      return g.expr(body->inputs[static_cast<std::size_t>(it - arguments_.begin())]);
    };
    body->outputs = cut.backward_part(*body, given, restored);
    g.seal();
    root_.define(*gradient_, body);
  }

  Graph& root_;
  Request& request_;
  const FunctionDef& f_;
  const Wish wish_;
  const std::string asked_by_;
  const FunctionDef* const unfinished_;
  FunctionDef* saving_ = nullptr;
  FunctionDef* gradient_ = nullptr;
  std::shared_ptr<SubGraph> both_;  // the body and its gradient
  Exprs arguments_;                 // in both_: the cotangents of results
  std::vector<Edge> results_;       // in both_
};

class CallStep : Step {
 public:
  explicit CallStep(const ControlStep& s) : Step(s), function_(*function_of(forward_)) {}

  ControlCotangents run() {
    for (const Cotangent& c : s_.cotangents) wish_.outputs.push_back(!c.is_none());
    wish_.outputs.resize(function_.results.size(), 0);
    ReachedInputs r =
        s_.request.flows.reached_inputs(forward_, s_.needed, wish_.outputs, s_.states);
    wish_.inputs = std::move(r.inputs);
    wish_.states = std::move(r.states);
    const std::vector<std::int32_t> states = wanted(wish_.states);
    if (states.empty() && wanted(wish_.inputs).empty()) return nothing();
    const FunctionDef& gradient = save();
    Exprs inputs;
    for (std::size_t o = 0; o < s_.cotangents.size(); ++o)
      if (wish_.outputs[o]) inputs.push_back(dy(static_cast<int>(o)));
    inputs.push_back(at_home(output(saved_)));
    const Exprs out = bind_call(here_, gradient, inputs, forward_.site);
    ControlCotangents answer = nothing();
    std::size_t next = 0;
    for (std::int32_t i : wanted(wish_.inputs))
      answer.inputs[at(i)] = refined(out[next++], input(i).spec());
    for (std::int32_t s : states) answer.states[s] = out[next++];
    return answer;
  }

 private:
  // Makes the call one that saves, unless an earlier gradient has, and yields the gradient to call.
  const FunctionDef& save() {
    const std::string wish = wish_.text();
    for (const FunctionDef* f = &function_; f; f = f->base) {
      const auto more = wish_.outputs.begin() + static_cast<std::ptrdiff_t>(f->results.size());
      // f does not yield it
      if (std::find(more, wish_.outputs.end(), 1) != wish_.outputs.end()) break;
      const auto it = f->derived.find(wish);
      if (it == f->derived.end()) continue;
      const Pair pair{it->second[0], it->second[1]};
      if (is_version_of(function_, *pair.saving)) saved_ = static_cast<int>(f->results.size());
      else if (f == &function_) call(*pair.saving);
      else continue;
      return *pair.gradient;
    }
    const bool is_left = was_left_unfinished();
    const FunctionDef& f = is_left ? *function_.base : function_;
    auto function =
        std::make_unique<Differentiation>(s_.graph.root(), s_.request, f, wish_,
                                          s_.graph.describe(s_.id), is_left ? &function_ : nullptr);
    const Pair made = function->declared();
    s_.request.add(std::move(function));
    if (is_left) saved_ = static_cast<int>(f.results.size());
    else call(*made.saving);
    return *made.gradient;
  }

  // True if a request that failed made the call one that saves and left its function without a
  // body. A function of this request is known to the one that it is derived from.
  bool was_left_unfinished() const {
    if (function_.body || !function_.base) return false;
    const auto& derived = function_.base->derived;
    return std::none_of(derived.begin(), derived.end(),
                        [&](const auto& made) { return made.second[0] == &function_; });
  }

  static bool is_version_of(const FunctionDef& function, const FunctionDef& base) {
    const FunctionDef* f = &function;
    while (f && f != &base) f = f->base;
    return f != nullptr;
  }

  void call(const FunctionDef& saving) {
    saved_ = static_cast<int>(function_.results.size());
    Attrs attrs = forward_.attrs;
    attrs.set("function", refer_to(saving));
    s_.graph.extend(s_.id, std::move(attrs), {any_list()});
  }

  const FunctionDef& function_;
  Wish wish_;
  int saved_ = 0;  // the output with the saved values
};

}  // namespace

ControlCotangents differentiate_call(const ControlStep& step) { return CallStep(step).run(); }

}  // namespace troupe::control

namespace troupe {

void Request::finish() {
  for (std::size_t i = 0; i < functions_.size(); ++i) functions_[i]->differentiate();
  for (std::size_t i = functions_.size(); i-- > 0;) functions_[i]->define();
  functions_.clear();
}

// Also drops callers of unfinished functions, so that a later request fails with the same error.
Request::~Request() {
  if (functions_.empty()) return;
  const auto& all = functions_[0]->root().functions();
  const auto is_unfinished = [](const FunctionDef* f) {
    const std::vector<const FunctionDef*> reached = reachable_from(*f);
    return std::any_of(reached.begin(), reached.end(),
                       [](const FunctionDef* g) { return !g->body; });
  };
  for (const auto& f : all)
    std::erase_if(f->derived, [&](const auto& made) {
      return std::any_of(made.second.begin(), made.second.end(), is_unfinished);
    });
}

}  // namespace troupe
