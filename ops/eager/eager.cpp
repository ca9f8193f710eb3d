#include <troupe/ops/eager/eager.hpp>

#include <fmt/format.h>

#include <troupe/devices/list/list.hpp>
#include <troupe/ops/eager/replay.hpp>
#include <troupe/ops/eager/run_kernel.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/node_types.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/ordering.hpp>
#include <troupe/ops/graph/transfer.hpp>

namespace troupe {
namespace {

// Does more than compute what it yields.
bool acts(const OpDef& op) {
  return !(op.effect == Effect::none || op.effect == Effect::read) || op.side_effect || op.random;
}

// Stands for a value that is not computed; an extent that is not known counts as 0.
Value stand_in(const ValueSpec& spec) {
  if (spec.is_list()) return List(spec.dtype, spec.shape, spec.depth);
  Shape shape = spec.shape.has_rank() ? spec.shape : Shape{};
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] < 0) shape.set(i, 0);
  return Tensor::zeros(spec.dtype, shape);
}

// These two are no part of `bind`, because its stack frame nests with calls.
[[noreturn, gnu::noinline]] void rethrow_naming(const Error& e, const Reader::Replayed& node) {
  throw Error(e.code(), fmt::format("{}: {}", node.graph.describe(node.id), e.what()));
}
[[noreturn, gnu::noinline]] void rethrow_naming(const Error& e, const OpDef& op,
                                                const std::vector<ValueSpec>& inputs,
                                                const Site& line) {
  std::string given;
  for (const ValueSpec& s : inputs) given += (given.empty() ? "" : ", ") + s.text();
  throw Error(e.code(), fmt::format("{}({}){} at {}: {}", op.name, given, within(line), line.text(),
                                    e.what()));
}

// Gives a member its value back at the end of a scope.
template <class T>
class Restore {
 public:
  explicit Restore(T& member) : member_(member), before_(member) {}
  Restore(Restore&&) = delete;
  ~Restore() { member_ = before_; }

 private:
  T& member_;
  const T before_;
};

}  // namespace

Eager::Eager()
    : Reader(0), own_(make_cpu_device()), device_(own_.get()), stream_(device_->make_stream()) {}
Eager::Eager(Device& device) : Reader(0), device_(&device), stream_(device.compute_stream()) {}
Eager::~Eager() = default;

bool Eager::is_nan(const Expr& e, const Site& site) {
  const Expr is = bind(find_op("IsNan"), {&e, 1}, {}, site)[0];
  return (is.shape().is_scalar() ? is : bind(find_op("Any"), {&is, 1}, {}, site)[0])
             .value()
             .at(0) != 0;
}

// Binds a comparison that is true if an operand is NaN, and records the operand in the watch.
Exprs Eager::compare(const OpDef& op, std::span<const Expr> inputs, Attrs attrs, const Site& site) {
  Comparisons& watch = *watch_;
  const Restore before(watch_);
  watch_ = nullptr;
  for (const Expr& e : inputs)
    if (watch.nan.empty() && is_nan(e, site)) {
      watch.nan = fmt::format("{} ({})", op.name, site_for(site).text());
      watch.operand = e.edge();
    }
  const Exprs fails = bind(opposite_of(op), inputs, std::move(attrs), site);
  return bind(find_op("LogicalNot"), fails, {}, site);
}

Exprs Eager::bind(const OpDef& op, std::span<const Expr> inputs, Attrs attrs, const Site& site,
                  int state) {
  const Replayed* const again = take_replayed();
  if (watch_) {
    watch_->has_effect = watch_->has_effect || (acts(op) && !is_looking_);
    if (is_ordering(op) && is_floating(inputs[0].dtype())) {
      watch_->compares = true;
      if (watch_->nan_holds) return compare(op, inputs, std::move(attrs), site);
    }
  }
  if (!op.evaluate || is_looking_) return compute(op, inputs, std::move(attrs), site, state, again);
  if (again) return run_functional(again->graph.node(again->id), inputs, again->states);
  return run_functional(node_of(op, inputs, std::move(attrs), site), inputs, {});
}

Exprs Eager::compute(const OpDef& op, std::span<const Expr> inputs, Attrs attrs, const Site& site,
                     int state, const Replayed* again) {
  std::vector<ValueSpec> specs;
  std::vector<Value> values;
  for (const Expr& e : inputs) {
    specs.push_back(spec_of(e));
    values.push_back(e.held());
  }
  const Node* const node = again ? &again->graph.node(again->id) : nullptr;
  try {
    const std::vector<ValueSpec> outputs = node ? node->outputs : infer_outputs(op, specs, attrs);
    if (is_looking_ && acts(op)) {
      std::vector<Value> zeros;
      for (const ValueSpec& s : outputs) zeros.push_back(stand_in(s));
      return in_scope(std::move(zeros));
    }
    const NodeTypes types = node ? NodeTypes(again->graph, *node) : NodeTypes(specs, outputs);
    return in_scope(run_kernel(op, attrs, types, node ? node->origin : ++calls_, state, values));
  } catch (const Error& e) {
    if (again) rethrow_naming(e, *again);
    rethrow_naming(e, op, specs, site_for(site));
  }
}

Exprs Eager::in_scope(std::vector<Value> values) {
  Exprs out;
  out.reserve(values.size());
  for (Value& v : values) out.push_back(Expr(this, std::move(v)));
  return out;
}

std::vector<Value> Eager::run_kernel(const OpDef& op, const Attrs& attrs, const NodeTypes& types,
                                     std::uint64_t origin, int state, std::vector<Value>& inputs) {
  StateInUse use;
  if (state >= 0) {
    const StateSpec& spec = states_[static_cast<std::size_t>(state)];
    use = {&spec, store_.get(spec)};
  }
  std::unique_ptr<Kernel> kernel =
      make_node_kernel(op, types.setup(op, attrs, *device_, origin, use.state));
  std::vector<Value> out =
      run_kernel_blocking(*kernel, inputs, types.outputs(), *device_, *stream_, run_, use, tag_);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!out[i].has_value())
      throw Error(Code::internal, fmt::format("the kernel of {} set no output {}", op.name, i));
    // made of host scalars
    if (out[i].kind() == Value::Kind::tensor) bring_to_device(out[i].tensor(), *device_, *stream_);
  }
  stream_->synchronize();
  return out;
}

// A functional node that no graph holds.
Node Eager::node_of(const OpDef& op, std::span<const Expr> inputs, Attrs attrs, const Site& site) {
  std::vector<ValueSpec> specs;
  for (const Expr& e : inputs) specs.push_back(spec_of(e));
  Node node;
  try {
    node.outputs = infer_outputs(op, specs, attrs);
  } catch (const Error& e) { rethrow_naming(e, op, specs, site_for(site)); }
  node.op = &op;
  node.attrs = std::move(attrs);
  node.inputs.resize(inputs.size());
  node.site = site_for(site);
  node.origin = ++calls_;
  return node;
}

Exprs Eager::run_functional(const Node& node, std::span<const Expr> inputs,
                            std::optional<std::span<const StateSpec>> states) {
  const Restore before(replayed_states_);
  if (states) replayed_states_ = states;
  std::vector<Value> values;
  for (const Expr& e : inputs) values.push_back(e.held());
  return in_scope(node.op->evaluate(*this, node, std::move(values)));
}

// ---- sub-graphs

std::vector<Value> Eager::call(const SubGraph& graph, std::vector<Value> arguments) {
  const auto states = replayed_states_.value_or(graph.graph.states());
  std::vector<Value> out;
  for (const Expr& e : replay(graph, states, *this, in_scope(std::move(arguments))))
    out.push_back(e.held());
  return out;
}

std::vector<Value> Eager::call(const SubGraph& graph, std::vector<Value> arguments,
                               std::uint64_t key, std::int64_t n) {
  const Restore tag(tag_);
  tag_ = fold_tag(tag_, key, static_cast<std::uint64_t>(n));
  return call(graph, std::move(arguments));
}

std::vector<Value> Eager::call(const FunctionDef& function, std::vector<Value> arguments,
                               const Node& node) {
  if (!function.body)
    throw Error(Code::failed_precondition,
                fmt::format("function '{}' ({}) is called at {} and was never defined",
                            function.name, function.site.text(), node.site.text()));
  if (depth_ >= kMaxDepth)
    throw Error(Code::resource_exhausted, too_deep(function, kMaxDepth, node.site));
  const Restore depth(depth_);
  ++depth_;
  return call(*function.body, std::move(arguments), node.origin, 0);
}

Tensor Eager::on_host(const Value& value) {
  const Tensor& t = value.tensor();
  if (t.is_on_host()) return t;
  // A scalar in a device's memory is no inline scalar: it comes back as a vector of one.
  Tensor host = Tensor::empty(t.dtype(), t.shape().is_scalar() ? Shape{1} : t.shape());
  device_->copy_to_host(*stream_, t, View(host));
  stream_->synchronize();
  return host.reshaped(t.shape());
}

// ---- programs

std::vector<Tensor> Eager::run(const Graph& graph, const Feeds& feeds,
                               const std::vector<Expr>& fetches) {
  std::vector<Expr> keys;
  std::vector<Tensor> values;
  for (const auto& [to, value] : feeds) {
    keys.push_back(to);
    values.push_back(value);
  }
  return run(prune(graph, graph.edges_to_feed(keys), graph.edges_to_fetch(fetches)), values);
}

std::vector<Tensor> Eager::run(const Program& program, const std::vector<Tensor>& feeds) {
  const Graph& graph = program.graph;
  for (Edge e : program.fetches)
    if (graph.spec(e).is_list())
      throw Error(Code::invalid_argument,
                  fmt::format("{} yields a list, which is not fetched; fetch what is read from it, "
                              "stacked or concatenated",
                              graph.describe(e.node)));
  Exprs arguments;
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    const bool is_known = i < program.feeds.size();
    if (is_known && graph.spec(program.feeds[i]).is_list())
      throw Error(Code::invalid_argument,
                  fmt::format("{} yields a list, which is not fed; feed the tensors it is made of",
                              graph.describe(program.feeds[i].node)));
    if (is_known && !feeds[i].has_value())
      throw Error(Code::invalid_argument,
                  fmt::format("{} takes {}, not nothing", graph.describe(program.feeds[i].node),
                              graph.spec(program.feeds[i]).text()));
    arguments.push_back(Expr(this, Value(feeds[i])));
  }
  std::vector<Tensor> out;
  for (const Expr& e : replay(program, *this, arguments)) out.push_back(on_host(e.held()));
  ++run_.id;
  ++run_.step;
  return out;
}

Tensor Eager::get(const Graph& graph, const std::string& variable) {
  for (const StateSpec& spec : graph.states())
    if (spec.kind == StateSpec::Kind::variable && spec.name == variable)
      return on_host(static_cast<VariableState&>(*store_.get(spec)).snapshot());
  throw Error(Code::not_found, fmt::format("the graph has no variable '{}'", variable));
}

Expr Eager::adopt(const Expr& foreign, const Site&) {
  const bool is_of_graph = !foreign.is_empty() && foreign.reader().depth() > 0;
  return Expr(this, is_looking_ && is_of_graph ? stand_in(foreign.spec()) : foreign.held());
}

ValueSpec Eager::spec_of(const Expr& e) const { return spec_of_value(e.held()); }

int Eager::declare(const StateSpec& spec, const Site&) {
  store_.get(spec);
  for (std::size_t i = 0; i < states_.size(); ++i)
    if (states_[i].name == spec.name) return static_cast<int>(i);
  states_.push_back(spec);
  return static_cast<int>(states_.size()) - 1;
}

}  // namespace troupe
