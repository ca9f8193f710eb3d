#include <troupe/autodiff/staged_gradient.hpp>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <troupe/autodiff/activity.hpp>
#include <troupe/autodiff/unconnected.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/subgraph.hpp>
#include <troupe/ops/graph/tracing.hpp>

namespace troupe {
namespace {

bool may_have_gradient(const ValueSpec& spec) {
  return carries_gradient(spec.dtype) || spec.depth == ValueSpec::kAnyDepth;
}

}  // namespace

std::shared_ptr<StagedGradient> StagedGradient::of(
    const std::shared_ptr<StagedFunction>& function) {
  const auto known = [&] {
    const std::lock_guard lock(function->in->mutex);
    return std::static_pointer_cast<StagedGradient>(function->extension);
  };
  if (std::shared_ptr<StagedGradient> made = known()) return made;
  // a user's gradient may call traced functions
  const std::lock_guard one(Tracing::mutex());
  const std::lock_guard lock(function->in->mutex);
  if (!function->extension)
    function->extension = std::shared_ptr<StagedGradient>(new StagedGradient(function));
  return std::static_pointer_cast<StagedGradient>(function->extension);
}

StagedGradient::StagedGradient(const std::shared_ptr<StagedFunction>& function)
    : in_(function->in), name_(function->name), inputs_(function->inputs),
      outputs_(function->outputs), reads_(function->reads),
      forward_nodes_(function->in->graph.size()), failures_(outputs_.size()),
      refusals_(outputs_.size()), cotangents_(outputs_.size()) {
  Graph& graph = in_->graph;
  const Graph::Reopened open(graph);
  std::vector<Independent> xs;
  std::vector<std::size_t> place;
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (may_have_gradient(graph.spec(inputs_[i]))) {
      xs.emplace_back(graph.expr(inputs_[i]));
      place.push_back(i);
    }
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    xs.emplace_back(Variable(&graph, reads_[i].state));
    place.push_back(inputs_.size() + i);
  }
  // Binds of a user's gradient on eager scopes go into the graph, too.
  Tracing::Callbacks callbacks;
  callbacks.capture = [&graph](const Expr& outside, const Site& site) {
    return graph.bind(find_op("Constant"), {}, Attrs{{"value", outside.value()}}, site)[0];
  };
  callbacks.declared = [this](const StateSpec& spec, const Site& site) {
    throw Error(
        Code::failed_precondition,
        fmt::format("the gradient of {}: its code creates '{}' at {}; create states outside "
                    "of it",
                    name_, spec.name, site.text()));
  };
  const Tracing tracing(graph, nullptr, "the gradient of " + name_, std::move(callbacks));
  find_refusals(xs);
  results_.resize(inputs_.size() + reads_.size());
  if (!xs.empty()) append(xs, place);
  std::vector<Edge> all = effects();
  for (const Cotangent& c : results_)
    for (Edge e : edges_of(c)) all.push_back(e);
  for (Edge e : used_by(all))
    if (std::find(inputs_.begin(), inputs_.end(), e) == inputs_.end()) saved_.push_back(e);
  forward_ = std::make_shared<StagedFunction>(name_, in_);
  forward_->inputs = inputs_;
  forward_->outputs = outputs_;
  forward_->outputs.insert(forward_->outputs.end(), saved_.begin(), saved_.end());
  forward_->reads = reads_;
  forward_->keep = function->keep;
  forward_->first = function->first;
  forward_->end = function->end;
}

void StagedGradient::append(const std::vector<Independent>& xs,
                            const std::vector<std::size_t>& place) {
  Graph& graph = in_->graph;
  const auto cotangents_of = [&](const std::vector<Expr>& ys, const std::vector<Expr>& dys) {
    first_ = graph.size();
    std::vector<Cotangent> found = cotangents(
        ys, Independents(xs), dys,
        {.unconnected = Unconnected::absent, .xs_are_independent = true, .ends_are_zeros = true},
        graph.node(ys[0].edge().node).site);
    end_ = graph.size();
    return found;
  };
  std::vector<Expr> ys, dys;
  std::vector<std::size_t> outputs;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const ValueSpec& spec = graph.spec(outputs_[i]);
    if (!may_have_gradient(spec)) continue;
    const Expr dy = graph.argument(spec, graph.node(outputs_[i].node).site);
    cotangents_[i] = dy.edge();
    outputs.push_back(i);
    ys.push_back(graph.expr(outputs_[i]));
    dys.push_back(dy);
  }
  if (ys.empty()) return;
  std::vector<Cotangent> found;
  try {
    found = cotangents_of(ys, dys);
  } catch (const Error&) {
    // The call itself is sound: only a request for the gradient of such an output is refused.
    std::vector<Expr> sound, of_sound;
    for (std::size_t k = 0; k < ys.size(); ++k) {
      try {
        cotangents_of({ys[k]}, {dys[k]});
        sound.push_back(ys[k]);
        of_sound.push_back(dys[k]);
      } catch (const Error& e) {
        const std::size_t i = outputs[k];
        failures_[i] = Status(e);
        if (refusals_[i].ok()) refusals_[i] = failures_[i];
        cotangents_[outputs[k]] = {};
      }
    }
    first_ = end_ = graph.size();
    if (sound.empty()) return;
    found = cotangents_of(sound, of_sound);
  }
  for (std::size_t k = 0; k < place.size(); ++k) results_[place[k]] = found[k];
}

std::vector<Edge> StagedGradient::effects() const {
  std::vector<Edge> out;
  for (std::int32_t id = first_; id < end_; ++id)
    if (has_effect(in_->graph.node(id))) out.push_back({id, 0});
  return out;
}

// A function may return the result of an assignment or of an actor beside a loss. Only a request
// for the gradient of such a result is refused, and where such paths count as zeros the others'
// gradient is its gradient.
void StagedGradient::find_refusals(const std::vector<Independent>& xs) {
  Graph& graph = in_->graph;
  const Graphs all{{&graph, forward_nodes_}};
  std::vector<Expr> ys;
  for (Edge e : outputs_)
    if (may_have_gradient(graph.spec(e))) ys.push_back(graph.expr(e));
  if (ys.empty() || xs.empty()) return;
  try {
    refuse_ends_at_ops(all, ys, xs, Site());
    return;
  } catch (const Error&) {}  // the loop finds the outputs one by one
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    if (!may_have_gradient(graph.spec(outputs_[i]))) continue;
    try {
      refuse_ends_at_ops(all, {graph.expr(outputs_[i])}, xs, Site());
    } catch (const Error& e) { refusals_[i] = Status(Code::unimplemented, e.what()); }
  }
}

std::vector<Edge> StagedGradient::edges_of(const Cotangent& c) const {
  if (c.is_none()) return {};
  if (!c.is_sparse() || c.is_list()) {
    const std::lock_guard lock(in_->mutex);
    const Graph::Reopened open(in_->graph);
    return {(c.is_sparse() ? c.to_dense() : c.dense).edge()};
  }
  return {c.indices.edge(), c.values.edge()};
}

std::vector<Edge> StagedGradient::used_by(std::vector<Edge> edges) const {
  const Graph& graph = in_->graph;
  std::vector<Edge> found;
  std::set<Edge> seen;
  while (!edges.empty()) {
    const Edge e = edges.back();
    edges.pop_back();
    if (!seen.insert(e).second) continue;
    const Node& node = graph.node(e.node);
    const bool is_cotangent =
        std::find(cotangents_.begin(), cotangents_.end(), e) != cotangents_.end();
    if (is_cotangent) continue;
    // a constant is computed again rather than handed on
    const bool is_constant = node.inputs.empty() && node.controls.empty() && node.op->is_pure() &&
                             node.op->name != "Input";
    if (e.node < forward_nodes_ && !is_constant) {
      found.push_back(e);
      continue;
    }
    for (Edge i : node.inputs) edges.push_back(i);
  }
  std::sort(found.begin(), found.end());
  return found;
}

const StagedGradient::Backward& StagedGradient::backward(const std::vector<bool>& needed) {
  const std::lock_guard lock(in_->mutex);
  std::unique_ptr<Backward>& made = backward_[needed];
  if (!made) made = make_backward(needed);
  return *made;
}

std::unique_ptr<StagedGradient::Backward> StagedGradient::make_backward(
    const std::vector<bool>& needed) const {
  auto made = std::make_unique<Backward>();
  made->function = std::make_shared<StagedFunction>("the gradient of " + name_, in_);
  StagedFunction& f = *made->function;
  std::vector<Edge> edges;
  for (std::size_t i = 0; i < results_.size(); ++i) {
    Result result;
    const std::vector<Edge> own = needed[i] ? edges_of(results_[i]) : std::vector<Edge>();
    const auto first = static_cast<std::int32_t>(f.outputs.size());
    if (own.size() == 1) result.dense = first;
    if (own.size() == 2) result.indices = first, result.values = first + 1;
    f.outputs.insert(f.outputs.end(), own.begin(), own.end());
    edges.insert(edges.end(), own.begin(), own.end());
    (i < inputs_.size() ? made->inputs : made->variables).push_back(result);
  }
  const std::vector<Edge> own_effects = effects();
  if (!own_effects.empty()) f.keep = Keep::effects;
  f.first = first_;
  f.end = end_;
  edges.insert(edges.end(), own_effects.begin(), own_effects.end());
  for (Edge e : used_by(edges)) {
    const auto input = std::find(inputs_.begin(), inputs_.end(), e);
    if (input != inputs_.end()) {
      made->sources.push_back(
          {Source::Kind::input, static_cast<std::size_t>(input - inputs_.begin())});
    } else {
      const auto saved = std::find(saved_.begin(), saved_.end(), e);
      if (saved == saved_.end())
        throw Error(Code::internal, name_ + ": its gradient uses a value that was not saved");
      made->sources.push_back({Source::Kind::output,
                               outputs_.size() + static_cast<std::size_t>(saved - saved_.begin())});
    }
    f.inputs.push_back(e);
  }
  for (std::size_t i = 0; i < outputs_.size(); ++i)
    if (cotangents_[i].node >= 0) {
      made->sources.push_back({Source::Kind::cotangent, i});
      f.inputs.push_back(cotangents_[i]);
    }
  return made;
}

}  // namespace troupe
