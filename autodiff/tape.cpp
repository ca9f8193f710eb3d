#include <troupe/autodiff/tape.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/autodiff/activity.hpp>
#include <troupe/autodiff/differentiate.hpp>
#include <troupe/autodiff/staged_gradient.hpp>
#include <troupe/autodiff/sweep.hpp>
#include <troupe/autodiff/tape_records.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/eager/replay.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/tracing.hpp>

namespace troupe {
namespace {

// True if paths end at the op by definition. Other ops without a gradient are recorded, so that a
// path which ends at one is refused.
bool cuts_paths(const OpDef& op) {
  return !op.differentiable && (op.pointwise || op.name == "StopGradient");
}

bool may_have_gradient(const Value& value) { return carries_gradient(value.dtype()); }

// Returns the key of a variable's reads: its state, for all scopes and graphs.
const State* key_of(const Variable& v) {
  auto* scope = dynamic_cast<Eager*>(&v.reader());
  return scope ? scope->state_of(scope->state_spec(v.state())).get() : nullptr;
}

// True for two variables of graphs that are one.
bool is_same(const Variable& a, const Variable& b) {
  const auto root_of = [](const Variable& v) {
    auto* graph = dynamic_cast<Graph*>(&v.reader());
    return graph ? &graph->root() : nullptr;
  };
  return a.state() == b.state() && root_of(a) == root_of(b);
}

// `all`: variables by their keys; the key of a variable of a graph is null.
bool has(const std::vector<std::pair<const State*, Variable>>& all, const Variable& variable) {
  const State* const key = key_of(variable);
  return std::any_of(all.begin(), all.end(), [&](const auto& known) {
    return key ? known.first == key : !known.first && is_same(known.second, variable);
  });
}

void require_dy(const Expr& y, std::size_t i, const Site& at) {
  if (is_complex(y.dtype()))
    throw Error(Code::invalid_argument,
                fmt::format("the tape at {}: target {} is {}; give its output gradient", at.text(),
                            i, name_of(y.dtype())));
}

// As `gradients` checks the cotangents of a graph.
void require_fit(const Expr& y, const Expr& dy, std::size_t i, const Site& at) {
  const ValueSpec is = dy.spec(), wanted = y.spec();
  if (is.dtype == wanted.dtype && is.depth == wanted.depth &&
      (is.is_list() || is.shape.is_compatible(wanted.shape)))
    return;
  throw Error(Code::invalid_argument,
              fmt::format("the tape at {}: the output gradient of target {} must be {}, not {}",
                          at.text(), i, wanted.text(), is.text()));
}

Exprs inlined(const StagedFunction& f, const Exprs& inputs) {
  const std::lock_guard lock(f.in->mutex);
  return replay(program_of(f), Tracing::active()->graph().current(), inputs);
}

}  // namespace

// ---- recording

GradientTape::GradientTape(const TapeOptions& options, At at)
    : options_(options), made_at_(at), records_(TapeRecords::take()) {
  if (const Tracing* trace = Tracing::active()) {
    graph_ = &trace->graph();
    pauses_.push_back({0, graph_->origins() + 1});
  }
  activate();
}

GradientTape::~GradientTape() { TapeRecords::give(std::move(records_)); }

void GradientTape::start(At at) {
  if (is_used_)
    throw Error(Code::failed_precondition,
                fmt::format("the tape made at {} is started at {}, and was used up at {}; make it "
                            "persistent, or reset it",
                            made_at_.text(), Site(at).text(), used_at_.text()));
  if (is_active())
    throw Error(Code::failed_precondition,
                fmt::format("the tape made at {} is started at {}, and records already",
                            made_at_.text(), Site(at).text()));
  if (graph_ && !pauses_.empty()) pauses_.back().to = graph_->origins() + 1;
  activate();
}

void GradientTape::stop() {
  if (graph_ && is_active())
    pauses_.push_back({graph_->origins() + 1, std::numeric_limits<std::uint64_t>::max()});
  deactivate();
}

void GradientTape::reset() {
  records_->clear();
  variables_.clear();
  watched_in_graph_.clear();
  pauses_.clear();
  if (graph_) pauses_.push_back({0, graph_->origins() + 1});
  is_used_ = false;
  activate();
}

void GradientTape::watch_one(const Independent& source) {
  if (const Variable* v = source.variable()) {
    if (!has(variables_, *v)) variables_.emplace_back(key_of(*v), *v);
    return;
  }
  const Expr& e = *source.expr();
  if (e.reader().depth() > 0 || Tracing::active()) {
    watched_in_graph_.push_back(e);
  } else if (may_have_gradient(e.held()) && records_->values.find(e.edge()) == ValueMap::kNone) {
    records_->values.set(e.edge(), kWatched);  // a value that the tape recorded keeps its entry
  }
}

bool GradientTape::watches(const State* key) const {
  return std::any_of(variables_.begin(), variables_.end(),
                     [&](const auto& known) { return known.first == key; });
}

void GradientTape::watch_state(const State* key, Variable variable) {
  if (!watches(key)) variables_.emplace_back(key, variable);
}

std::vector<Variable> GradientTape::watched_variables() const {
  std::vector<Variable> out;
  for (const auto& [key, variable] : variables_) out.push_back(variable);
  return out;
}

void GradientTape::enter(const TapeEntry& entry) {
  const auto number = static_cast<std::int32_t>(records_->size()) - 1;
  for (const Expr& y : entry.outputs)
    if (may_have_gradient(y.held())) records_->values.set(y.edge(), number);
}

void GradientTape::computed(const Computed& firing) {
  const ValueMap& values = records_->values;
  const bool is_read = firing.state && firing.op.effect == Effect::read &&
                       firing.op.name == "ReadVariable" &&
                       may_have_gradient(firing.outputs[0].held());
  const auto is_active = [&](std::size_t i) {
    return !firing.op.takes_only_shape(i) &&
           values.find(firing.inputs[i].edge()) != ValueMap::kNone;
  };
  if (is_read) {
    if (options_.watch_variables)
      watch_state(firing.state, Variable(&firing.reader, firing.state_number));
    else if (!watches(firing.state)) return;
  } else {
    if (cuts_paths(firing.op) || values.empty()) return;
    std::size_t first = 0;
    while (first < firing.inputs.size() && !is_active(first)) ++first;
    if (first == firing.inputs.size()) return;
  }
  TapeEntry& entry = records_->next();
  if (is_read) entry.read = firing.state;
  else
    for (std::size_t i = 0; i < firing.inputs.size(); ++i) entry.active.push_back(is_active(i));
  entry.op = &firing.op;
  entry.attrs = firing.attrs;
  entry.inputs.assign(firing.inputs.begin(), firing.inputs.end());
  entry.outputs.assign(firing.outputs.begin(), firing.outputs.end());
  entry.site = firing.site;
  enter(entry);
}

bool GradientTape::records(const StagedFunction& function, std::span<const Expr> inputs,
                           Eager& scope) {
  for (const StagedFunction::Read& r : function.reads)
    if (options_.watch_variables || watches(scope.resolve(r.spec).state)) return true;
  return std::any_of(inputs.begin(), inputs.end(), [&](const Expr& x) {
    return records_->values.find(x.edge()) != ValueMap::kNone;
  });
}

std::shared_ptr<StagedFunction> GradientTape::forward_of(
    const std::shared_ptr<StagedFunction>& function) {
  return StagedGradient::of(function)->forward();
}

void GradientTape::called(const std::shared_ptr<StagedFunction>& function,
                          std::span<const Expr> inputs, std::span<const Expr> outputs,
                          Eager& scope) {
  std::vector<std::shared_ptr<StagedFunction>> versions{function};
  while (versions.back()->outputs.size() < outputs.size()) {
    std::shared_ptr<StagedFunction> next = forward_of(versions.back());
    if (next->outputs.size() == versions.back()->outputs.size()) break;
    versions.push_back(std::move(next));
  }
  TapeEntry& entry = records_->next();
  entry.inputs.assign(inputs.begin(), inputs.end());
  entry.outputs.assign(outputs.begin(), outputs.end());
  for (const Expr& x : inputs)
    entry.active.push_back(records_->values.find(x.edge()) != ValueMap::kNone);
  entry.versions = std::move(versions);
  if (options_.watch_variables)
    for (const StagedFunction::Read& r : function->reads) {
      const Eager::Resolved state = scope.resolve(r.spec);
      watch_state(state.state, Variable(&scope, state.number));
    }
  enter(entry);
}

// ---- gradients of computed values

class GradientTape::Sweep {
 public:
  Sweep(GradientTape& tape, Unconnected unconnected, const Site& at)
      : tape_(tape), unconnected_(unconnected), at_(at), entries_(tape.records_->size()),
        first_(first_outputs(*tape.records_)), arrivals_(first_.back()) {}

  void want(const Expr& x) {
    const std::int32_t number = tape_.records_->values.find(x.edge());
    if (number == ValueMap::kNone) return;
    wanted_.emplace(x.edge(), Cotangent());
  }

  void arrive(const Expr& x, Cotangent c) {
    const std::int32_t number = tape_.records_->values.find(x.edge());
    // a value that was made after the request is none of its inputs
    if (number == ValueMap::kNone || (number != kWatched && number >= count())) return;
    if (number == kWatched) {
      if (const auto it = wanted_.find(x.edge()); it != wanted_.end())
        it->second = troupe::detail::add(it->second, c);
      return;
    }
    const TapeEntry& entry = (*tape_.records_)[troupe::at(number)];
    std::int32_t output = first_[troupe::at(number)];
    for (const Expr& y : entry.outputs) {
      if (y.edge() == x.edge()) return arrivals_.add(output, std::move(c));
      ++output;
    }
  }

  void run() {
    for (std::int32_t n = count() - 1; n >= 0; --n)
      if (has_arrivals(n)) visit(n);
  }

  Cotangent of(const Expr& x) const {
    const auto it = wanted_.find(x.edge());
    return it == wanted_.end() ? Cotangent() : it->second;
  }
  Cotangent of(const State* key) const {
    const auto it = of_states_.find(key);
    return it == of_states_.end() ? Cotangent() : it->second;
  }

 private:
  std::int32_t count() const { return static_cast<std::int32_t>(entries_); }

  // Outputs in a row: where those of each entry begin, and how many there are.
  static std::vector<std::int32_t> first_outputs(const TapeRecords& records) {
    std::vector<std::int32_t> first;
    first.reserve(records.size() + 1);
    first.push_back(0);
    for (std::size_t n = 0; n < records.size(); ++n)
      first.push_back(first.back() + static_cast<std::int32_t>(records[n].outputs.size()));
    return first;
  }

  bool has_arrivals(std::int32_t n) const {
    for (std::int32_t i = first_[troupe::at(n)]; i < first_[troupe::at(n + 1)]; ++i)
      if (arrivals_.any(i)) return true;
    return false;
  }

  void visit(std::int32_t n) {
    const TapeEntry& entry = (*tape_.records_)[troupe::at(n)];
    std::vector<Cotangent> totals;
    totals.reserve(entry.outputs.size());
    for (std::int32_t i = first_[troupe::at(n)]; i < first_[troupe::at(n + 1)]; ++i)
      totals.push_back(arrivals_.take(i));
    for (std::size_t i = 0; i < totals.size(); ++i)
      if (const auto it = wanted_.find(entry.outputs[i].edge()); it != wanted_.end())
        it->second = totals[i];
    if (!entry.op) return pass_through_call(entry, totals);
    if (entry.read) {
      Cotangent& sum = of_states_[entry.read];
      sum = troupe::detail::add(sum, totals[0]);
      return;
    }
    const bool has_gradient = entry.op->differentiable && entry.op->gradient;
    if (!has_gradient && unconnected_ == Unconnected::zeros) return;
    std::vector<Cotangent> dxs;
    try {
      if (!has_gradient)
        throw Error(Code::unimplemented,
                    "it has no gradient; use stop_gradient if it is to count as a constant, or ask "
                    "for Unconnected::zeros");
      const Reader::AtSite at(entry.outputs[0].reader(), entry.site);
      dxs = differentiate(*entry.op, entry.attrs,
                          {entry.inputs, entry.outputs, std::move(totals), entry.active});
    } catch (const Error& e) {
      throw Error(e.code(), fmt::format("the gradient of {} at {}, which the tape at {} is asked "
                                        "for: {}",
                                        entry.op->name, entry.site.text(), at_.text(), e.what()));
    }
    for (std::size_t i = 0; i < dxs.size(); ++i)
      if (!dxs[i].is_none()) arrive(entry.inputs[i], std::move(dxs[i]));
  }

  void pass_through_call(const TapeEntry& entry, const std::vector<Cotangent>& totals) {
    // The first version that yields all outputs to which something has arrived.
    std::size_t outputs = 0;
    for (std::size_t i = 0; i < totals.size(); ++i)
      if (!totals[i].is_none()) outputs = i + 1;
    std::size_t version = 0;
    while (version < entry.versions.size() && entry.versions[version]->outputs.size() < outputs)
      ++version;
    const std::shared_ptr<StagedFunction>& f = entry.versions[version];
    const std::shared_ptr<StagedGradient> gradient = StagedGradient::of(f);
    if (gradient->forward()->outputs.size() > entry.outputs.size())
      throw Error(Code::failed_precondition,
                  fmt::format("the tape made at {} is asked at {} for a gradient of a gradient of "
                              "{}, which it alone recorded; record the first gradient with a tape "
                              "inside this one",
                              tape_.made_at_.text(), at_.text(), f->name));
    const bool ends_are_zeros = unconnected_ == Unconnected::zeros;
    for (std::size_t i = 0; i < totals.size(); ++i)
      if (const Status& refused = gradient->refusal(i, ends_are_zeros);
          !totals[i].is_none() && !refused.ok())
        throw Error(refused.code(),
                    fmt::format("the gradient of result {} of {}, which the tape at {} is asked "
                                "for: {}",
                                i, f->name, at_.text(), refused.message()));
    auto& scope = static_cast<Eager&>(entry.outputs[0].reader());
    std::vector<bool> needed = entry.active;
    for (const StagedFunction::Read& r : f->reads)
      needed.push_back(tape_.watches(scope.resolve(r.spec).state));
    const StagedGradient::Backward& back = gradient->backward(needed);
    if (back.function->outputs.empty() && back.function->keep == Keep::fetches) return;
    Exprs inputs;
    for (const StagedGradient::Source& s : back.sources) {
      switch (s.kind) {
        case StagedGradient::Source::Kind::input: inputs.push_back(entry.inputs[s.index]); break;
        case StagedGradient::Source::Kind::output: inputs.push_back(entry.outputs[s.index]); break;
        case StagedGradient::Source::Kind::cotangent: {
          const bool has = s.index < totals.size() && !totals[s.index].is_none();
          inputs.push_back(has ? totals[s.index].to_dense()
                               : zero_cotangent(entry.outputs[s.index]));
        }
      }
    }
    // a trace takes the program in
    const Exprs made = Tracing::active() ? inlined(*back.function, inputs)
                                         : call_staged(back.function, inputs, scope);
    const auto result = [&](const StagedGradient::Result& r, const Expr& like) -> Cotangent {
      if (r.dense >= 0) return made[troupe::at(r.dense)];
      return Cotangent::sparse(made[troupe::at(r.indices)], made[troupe::at(r.values)], like);
    };
    for (std::size_t i = 0; i < back.inputs.size(); ++i)
      if (!back.inputs[i].is_none())
        arrive(entry.inputs[i], result(back.inputs[i], entry.inputs[i]));
    for (std::size_t i = 0; i < back.variables.size(); ++i) {
      if (back.variables[i].is_none()) continue;
      const StateSpec& read = f->reads[i].spec;
      // sparse rows need only the variable's shape: zeros are enough
      const Expr like = back.variables[i].dense >= 0
                            ? Expr()
                            : scope.zeros(read.values[0].dtype, read.values[0].shape);
      Cotangent& sum = of_states_[scope.resolve(read).state];
      sum = troupe::detail::add(sum, result(back.variables[i], like));
    }
  }

  GradientTape& tape_;
  const Unconnected unconnected_;
  const Site at_;
  const std::size_t entries_;              // entries that are recorded meanwhile have later numbers
  const std::vector<std::int32_t> first_;  // by entry: its first output
  Arrivals arrivals_;
  std::map<Edge, Cotangent> wanted_;
  std::map<const State*, Cotangent> of_states_;
};

std::vector<Cotangent> GradientTape::of_values(const std::vector<Expr>& ys, const Independents& xs,
                                               const TapeGradientOptions& options, const Site& at) {
  Sweep sweep(*this, options.unconnected, at);
  for (const Independent& x : xs)
    if (x.expr()) sweep.want(*x.expr());
  for (std::size_t i = 0; i < ys.size(); ++i) {
    if (!may_have_gradient(ys[i].held())) continue;
    const bool is_given =
        i < options.output_gradients.size() && !options.output_gradients[i].is_empty();
    if (is_given) require_fit(ys[i], options.output_gradients[i], i, at);
    if (records_->values.find(ys[i].edge()) == ValueMap::kNone) continue;
    if (!is_given) require_dy(ys[i], i, at);
    sweep.arrive(ys[i], is_given ? options.output_gradients[i] : ones_like(Operand(ys[i], at)));
  }
  sweep.run();
  std::vector<Cotangent> out;
  for (const Independent& x : xs) {
    if (const Variable* v = x.variable()) out.push_back(sweep.of(key_of(*v)));
    else out.push_back(sweep.of(*x.expr()));
  }
  return out;
}

// ---- gradients of a graph

std::vector<Cotangent> GradientTape::of_graph(Graph& graph, const std::vector<Expr>& ys,
                                              const Independents& xs,
                                              const TapeGradientOptions& options, const Site& at) {
  Graph& root = graph.root();
  const auto in_graph = [&](const Expr& e) {
    return e.reader().depth() > 0 ? e : root.current().adopt(e, at);
  };
  std::vector<Expr> floating, dys;
  for (std::size_t i = 0; i < ys.size(); ++i) {
    if (ys[i].reader().depth() == 0 || !carries_gradient(ys[i].dtype())) continue;
    floating.push_back(ys[i]);
    dys.emplace_back();
    if (i < options.output_gradients.size() && !options.output_gradients[i].is_empty())
      dys.back() = in_graph(options.output_gradients[i]);
    else require_dy(ys[i], i, at);
  }
  // An x counts if it is watched, or computed from watched values.
  const auto is_watched = [&](const Independent& x) {
    if (const Variable* v = x.variable()) return options_.watch_variables || has(variables_, *v);
    if (!graph_) return true;  // a graph built by hand, of which everything counts
    const Expr e = in_graph(*x.expr());
    for (const Expr& w : watched_in_graph_) {
      const Expr mine = in_graph(w);
      if (mine.edge() == e.edge() && &mine.reader() == &e.reader()) return true;
    }
    const Node& node = static_cast<Graph&>(e.reader()).node(e.edge().node);
    return node.op->name != "Input";
  };
  std::vector<Cotangent> out(xs.size());
  std::vector<Independent> reached;
  std::vector<std::size_t> place;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    if (!carries_gradient(xs[i].dtype()) || !is_watched(xs[i])) continue;
    place.push_back(i);
    if (const Variable* v = xs[i].variable()) {
      const bool is_here = v->reader().depth() > 0;
      reached.emplace_back(
          is_here ? *v : Variable(&root, root.declare(v->reader().state_spec(v->state()), at)));
    } else {
      reached.emplace_back(in_graph(*xs[i].expr()));
    }
  }
  if (floating.empty() || reached.empty()) return out;
  GradientOptions how;
  how.unconnected =
      options.unconnected == Unconnected::zeros ? Unconnected::zeros : Unconnected::absent;
  const std::function<bool(const Node&)> is_recorded = [&](const Node& node) {
    return std::none_of(pauses_.begin(), pauses_.end(), [&](const Pause& p) {
      return node.origin >= p.from && node.origin < p.to;
    });
  };
  if (!pauses_.empty()) how.follows = &is_recorded;
  const std::vector<Cotangent> found =
      troupe::detail::cotangents(floating, Independents(reached), dys, how, at);
  for (std::size_t k = 0; k < place.size(); ++k) out[place[k]] = found[k];
  return out;
}

void GradientTape::begin_use(const Site& at) {
  if (is_used_)
    throw Error(
        Code::failed_precondition,
        fmt::format("the tape made at {} is asked at {} for a second gradient, and was used "
                    "up at {}; make it with {{.persistent = true}}",
                    made_at_.text(), at.text(), used_at_.text()));
  if (options_.persistent) return;
  deactivate();
  is_used_ = true;
  used_at_ = at;
}

std::vector<Cotangent> GradientTape::cotangents(const Targets& targets, const Independents& sources,
                                                const TapeGradientOptions& options, At location) {
  const Site at(location);
  const std::vector<Expr>& ys = targets.ys();
  if (!options.output_gradients.empty() && options.output_gradients.size() != ys.size())
    throw Error(Code::invalid_argument,
                fmt::format("the tape at {}: {} output gradients are given for {} targets",
                            at.text(), options.output_gradients.size(), ys.size()));
  for (std::size_t i = 0; i < ys.size(); ++i)
    if (ys[i].is_empty())
      throw Error(Code::failed_precondition,
                  fmt::format("the tape at {}: target {} is an empty expression", at.text(), i));
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (sources[i].expr() && sources[i].expr()->is_empty())
      throw Error(Code::failed_precondition,
                  fmt::format("the tape at {}: source {} is an empty expression", at.text(), i));
  begin_use(at);
  Graph* graph = nullptr;
  for (const Expr& y : ys)
    if (auto* g = dynamic_cast<Graph*>(&y.reader().current())) graph = g;
  std::vector<Cotangent> out =
      graph ? of_graph(*graph, ys, sources, options, at) : of_values(ys, sources, options, at);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!out[i].is_none()) continue;
    const Expr zeros = unreached(sources[i], i, options.unconnected, at);
    if (!zeros.is_empty()) out[i] = zeros;
  }
  if (!options_.persistent) records_->clear();
  return out;
}

// Returns zeros of x's shape, or nothing, as the caller asked for an x that no gradient reaches.
Expr GradientTape::unreached(const Independent& x, std::size_t i, Unconnected unconnected,
                             const Site& at) const {
  if (unconnected == Unconnected::refused)
    throw Error(Code::invalid_argument,
                fmt::format("the tape at {}: no target depends on source {} by a path that has a "
                            "gradient; ask for Unconnected::zeros or Unconnected::none",
                            at.text(), i));
  if (unconnected != Unconnected::zeros) return {};
  if (const Variable* v = x.variable()) return v->reader().zeros(v->dtype(), v->shape());
  return zero_cotangent(*x.expr());
}

std::vector<Expr> GradientTape::dense(const std::vector<Cotangent>& cotangents) {
  std::vector<Expr> out;
  for (const Cotangent& c : cotangents) out.push_back(c.is_none() ? Expr() : c.to_dense());
  return out;
}

}  // namespace troupe
