#include <troupe/ops/eager/eager.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <set>

#include <fmt/format.h>

#include <troupe/devices/list/list.hpp>
#include <troupe/ops/eager/bind_observer.hpp>
#include <troupe/ops/eager/list_elements.hpp>
#include <troupe/ops/eager/replay.hpp>
#include <troupe/ops/eager/run_kernel.hpp>
#include <troupe/ops/graph/comparison_ops.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/node_types.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/spare_exprs.hpp>
#include <troupe/ops/graph/tracing.hpp>
#include <troupe/ops/graph/transfer.hpp>
#include <troupe/ops/graph/variable.hpp>

namespace troupe {
namespace {

// True for ops with effects or random draws.
bool acts(const OpDef& op) {
  return !(op.effect == Effect::none || op.effect == Effect::read) || op.side_effect || op.random;
}

// Stands for a value that is not computed; an extent that is not known counts as 0.
Value placeholder(const ValueSpec& spec) {
  if (spec.is_list()) return List(spec.dtype, spec.shape, spec.depth);
  Shape shape = spec.shape.has_rank() ? spec.shape : Shape{};
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] < 0) shape.set(i, 0);
  return Tensor::zeros(spec.dtype, shape);
}

// True if the value, or an element of the list, is in the memory of a device other than this one.
// `counts_host`: so is what is on the host, unless this device computes there.
bool is_elsewhere(const Value& value, const Device& here, bool counts_host = false) {
  if (value.is_list()) {
    const List& list = value.list();
    for (std::int64_t i = 0; i < list.length(); ++i)
      if (is_elsewhere(list.peek(i), here, counts_host)) return true;
    return false;
  }
  if (value.kind() != Value::Kind::tensor) return false;
  const Tensor& t = value.tensor();
  if (!t.is_on_host()) return t.device() != &here;
  return counts_host && !here.is_synchronous() && !t.is_inline() && t.dtype() != DType::string;
}

// These two are no part of `bind`, because its stack frame nests with calls.
[[noreturn, gnu::noinline]] void rethrow_naming(const Error& e, const Reader::Replayed& node) {
  throw Error(e.code(), fmt::format("{}: {}", node.graph.describe(node.id), e.what()));
}
[[noreturn, gnu::noinline]] void rethrow_naming(const Error& e, const OpDef& op,
                                                const std::vector<ValueSpec>& inputs,
                                                const Site& line, const std::string& state = "") {
  std::string given;
  for (const ValueSpec& s : inputs) given += (given.empty() ? "" : ", ") + s.text();
  const std::string of = state.empty() ? "" : fmt::format(" of '{}'", state);
  throw Error(e.code(), fmt::format("{}({}){}{} at {}: {}", op.name, given, of, within(line),
                                    line.text(), e.what()));
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

// Returns a run id of an eager scope. Engines that share its states number their runs from 1; these
// ids begin at 2^63.
std::uint64_t fresh_run_id() {
  static std::atomic<std::uint64_t> next{std::uint64_t{1} << 63};  // publishes nothing but itself
  return next.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t fresh_scope_id() {
  static std::atomic<std::uint64_t> next{1};  // publishes nothing but itself
  return next.fetch_add(1, std::memory_order_relaxed);
}

Eager*& innermost_scope() {
  static thread_local Eager* scope = nullptr;
  return scope;
}

// Returns a mark that is unique in this process. Each thread takes ids by blocks.
Edge fresh_mark() {
  constexpr std::uint64_t kBlock = 1 << 20;
  static std::atomic<std::uint64_t> next{0};  // publishes nothing but itself
  static thread_local std::uint64_t id = 0, end = 0;
  if (id == end) {
    id = next.fetch_add(kBlock, std::memory_order_relaxed);
    end = id + kBlock;
  }
  const std::uint64_t mine = id++;
  return {static_cast<std::int32_t>(mine & 0x7fffffff), static_cast<std::int32_t>(mine >> 31)};
}

}  // namespace

Eager::Eager()
    : Reader(0), id_(fresh_scope_id()), own_(make_cpu_device()),
      own_states_(std::make_unique<StateStore>()), store_(own_states_.get()),
      outer_(std::exchange(innermost_scope(), this)) {
  at_ = places_.emplace_back(std::make_unique<Place>(*own_)).get();
}
Eager::Eager(Device& device)
    : Reader(0), id_(fresh_scope_id()), own_states_(std::make_unique<StateStore>()),
      store_(own_states_.get()), outer_(std::exchange(innermost_scope(), this)) {
  at_ = places_.emplace_back(std::make_unique<Place>(device)).get();
}
Eager::Eager(EagerHost& host)
    : Reader(0), id_(fresh_scope_id()), host_(&host), store_(&host.eager_states()),
      outer_(std::exchange(innermost_scope(), this)) {
  at_ = places_.emplace_back(std::make_unique<Place>(host.eager_device())).get();
  run_.id = fresh_run_id();
  run_.seed = host.eager_seed();
}
Eager::~Eager() {
  for (const auto& place : places_)
    if (!place->device->is_synchronous() && !place->remote) {
      try {
        place->stream->synchronize();
      } catch (const Error&) {}  // nothing reads the values any more
    }
  // Scopes of a thread may end in any order.
  for (Eager** at = &innermost_scope(); *at; at = &(*at)->outer_)
    if (*at == this) {
      *at = outer_;
      break;
    }
}

Eager* Eager::innermost() { return innermost_scope(); }

Reader& Eager::current() {
  Tracing* const trace = Tracing::active();
  return trace ? trace->graph().current() : static_cast<Reader&>(*this);
}

Expr Eager::hold(Value value) { return Expr(this, std::move(value), fresh_mark()); }

bool Eager::is_nan(const Expr& e, const Site& site) {
  const Expr is = bind(find_op("IsNan"), {&e, 1}, {}, site)[0];
  return on_host(is.shape().is_scalar() ? is : bind(find_op("Any"), {&is, 1}, {}, site)[0]).at(0) !=
         0;
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
  const Exprs fails = bind(negated_comparison(op), inputs, std::move(attrs), site);
  return bind(find_op("LogicalNot"), fails, {}, site);
}

Exprs Eager::bind(const OpDef& op, std::span<const Expr> inputs, Attrs attrs, const Site& site,
                  int state) {
  const Replayed* const again = take_replayed();
  if (Tracing* const trace = again ? nullptr : Tracing::active())
    return bind_in(trace->graph(), op, inputs, std::move(attrs), site, state);
  if (state >= 0 && !without_value_.empty()) require_value(op, state, site);
  if (watch_) {
    watch_->has_effect = watch_->has_effect || (acts(op) && !is_looking_);
    if (is_ordering(op) && is_floating(inputs[0].dtype())) {
      watch_->compares = true;
      if (watch_->nan_holds) return compare(op, inputs, std::move(attrs), site);
    }
  }
  if ((at_->remote || state >= 0) && !is_looking_ && !op.evaluate) {
    Place& place = place_for(op, inputs, state);
    if (place.remote) return bind_there(place, op, inputs, std::move(attrs), site, state, again);
  }
  if (!again && !is_looking_ && state < 0 && KernelCache::can_keep(op, attrs))
    return compute_cached(op, inputs, std::move(attrs), site);
  if (!op.evaluate || is_looking_) return compute(op, inputs, std::move(attrs), site, state, again);
  if (again) return run_functional(again->graph.node(again->id), inputs, again->states);
  return run_functional(node_of(op, inputs, std::move(attrs), site), inputs, {});
}

// A trace runs on this thread: the bind goes into its graph, where states are found by name.
Exprs Eager::bind_in(Graph& graph, const OpDef& op, std::span<const Expr> inputs, Attrs attrs,
                     const Site& site, int state) {
  int there = -1;
  if (state >= 0) {
    StateSpec spec = states_[static_cast<std::size_t>(state)];
    Tracing& trace = *Tracing::active();
    require_own(trace, spec, site);
    if (!without_value_.empty()) require_value(op, state, site);
    // it stays where it is, not where the code's device scopes compute
    if (!trace.devices().empty() && spec.device.empty() && !spec.is_of_host())
      spec.device = places_[0]->device->name();
    there = graph.declare(spec, site);
  }
  return graph.bind(op, inputs, std::move(attrs), site_for(site), there);
}

// Repeats an earlier bind: the kernel is cached, and its outputs were checked.
Exprs Eager::compute_cached(const OpDef& op, std::span<const Expr> inputs, Attrs attrs,
                            const Site& site) {
  std::vector<ValueSpec> specs;
  Place& place = at_->remote ? *places_[0] : *at_;
  try {
    KernelCache& kernels = place.kernels;
    KernelCache::Prepared* prepared = kernels.find(op, attrs, inputs);
    if (!prepared) {
      // enqueued work uses kernels that the cache is about to drop
      if (kernels.size() == KernelCache::kLimit && !place.device->is_synchronous()) wait(place);
      for (const Expr& e : inputs) specs.push_back(spec_of(e));
      Attrs all = attrs;
      std::vector<ValueSpec> outputs = infer_outputs(op, specs, all);
      prepared = &kernels.add(std::make_unique<KernelCache::Prepared>(
          op, std::move(attrs), std::move(all), specs, std::move(outputs), *place.device));
    }
    Exprs out =
        run_kernel(place, *prepared->kernel, op, inputs, prepared->outputs.size(), {}, site);
    if (BindObserver::innermost()) tell(op, prepared->all, inputs, out, nullptr, -1, site);
    return out;
  } catch (const Error& e) {
    if (specs.empty())
      for (const Expr& x : inputs) specs.push_back(spec_of(x));
    rethrow_naming(e, op, specs, site_for(site));
  }
}

Exprs Eager::compute(const OpDef& op, std::span<const Expr> inputs, Attrs attrs, const Site& site,
                     int state, const Replayed* again) {
  std::vector<ValueSpec> specs;
  for (const Expr& e : inputs) specs.push_back(spec_of(e));
  const Node* const node = again ? &again->graph.node(again->id) : nullptr;
  try {
    const std::vector<ValueSpec> outputs = node ? node->outputs : infer_outputs(op, specs, attrs);
    if (is_looking_ && acts(op)) {
      std::vector<Value> zeros;
      for (const ValueSpec& s : outputs) zeros.push_back(placeholder(s));
      return in_scope(std::move(zeros));
    }
    const NodeTypes types = node ? NodeTypes(again->graph, *node) : NodeTypes(specs, outputs);
    StateInUse use;
    if (state >= 0) {
      const StateSpec& spec = states_[static_cast<std::size_t>(state)];
      use = {&spec, store_->get(spec)};
    }
    Place& place = state >= 0 || at_->remote ? *places_[0] : *at_;
    const std::unique_ptr<Kernel> kernel = make_node_kernel(
        op, types.setup(op, attrs, *place.device, node ? node->origin : ++calls_, use.state));
    Exprs out = run_kernel(place, *kernel, op, inputs, types.outputs(), use, site);
    // the work uses the kernel, which ends here, and others use the state without this scope
    if (!place.device->is_synchronous()) wait(place);
    if (BindObserver::innermost()) tell(op, attrs, inputs, out, use.state.get(), state, site);
    return out;
  } catch (const Error& e) {
    if (again) rethrow_naming(e, *again);
    rethrow_naming(e, op, specs, site_for(site), state < 0 ? "" : state_spec(state).name);
  }
}

// Computes on a device of another node.
Exprs Eager::bind_there(Place& place, const OpDef& op, std::span<const Expr> inputs, Attrs attrs,
                        const Site& site, int state, const Replayed* again) {
  std::vector<ValueSpec> specs;
  for (const Expr& e : inputs) specs.push_back(spec_of(e));
  try {
    return compute_there(place, op, inputs, specs, std::move(attrs), site, state, again);
  } catch (const Error& e) {
    if (again) rethrow_naming(e, *again);
    rethrow_naming(e, op, specs, site_for(site));
  }
}

Exprs Eager::in_scope(std::vector<Value> values) {
  Exprs out;
  out.reserve(values.size());
  for (Value& v : values) out.push_back(hold(std::move(v)));
  return out;
}

Exprs Eager::run_kernel(Place& place, Kernel& kernel, const OpDef& op, std::span<const Expr> inputs,
                        std::size_t outputs, const StateInUse& use, const Site& site) {
  // this many need no memory from the heap
  std::array<Value, 3> few_in;
  std::array<Value, 1> few_out;
  std::vector<Value> many_in, many_out;
  std::span<Value> in(few_in.data(), std::min(inputs.size(), few_in.size()));
  std::span<Value> out(few_out.data(), std::min(outputs, few_out.size()));
  if (inputs.size() > few_in.size()) many_in.resize(inputs.size()), in = many_in;
  if (outputs > few_out.size()) many_out.resize(outputs), out = many_out;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    in[i] = inputs[i].held();
    const bool stays =
        moves_elements(op) && (in[i].is_list() || (at_->remote && is_element(op, i)));
    if (!stays) bring(in[i], place);
  }
  const bool is_synchronous = place.device->is_synchronous();
  if (place.remote) place.remote->attribute(*place.stream, op.name, site_for(site));
  else if (!is_synchronous) enqueue(place, op, site_for(site));
  run_kernel_blocking(kernel, in, out, *place.device, *place.stream, run_, use, tag_,
                      host_ == nullptr);
  Exprs made = SpareExprs::take();
  made.reserve(outputs);
  for (std::size_t i = 0; i < outputs; ++i) {
    if (!out[i].has_value())
      throw Error(Code::internal, fmt::format("the kernel of {} set no output {}", op.name, i));
    // made of host scalars
    if (!is_synchronous && out[i].kind() == Value::Kind::tensor)
      copy_to_device(out[i].tensor(), *place.device, *place.stream);
    made.push_back(hold(std::move(out[i])));
  }
  return made;
}

// ---- devices

Eager::OnDevice::OnDevice(Eager& eager, const std::string& device, const Site& at)
    : eager_(eager), before_(eager.at_) {
  if (Tracing* const trace = Tracing::active()) {
    traced_.reset(new Graph::Scope(trace->graph().on_device(device)));
    trace_ = trace;
    trace->devices().push_back(device);
    return;
  }
  try {
    eager.at_ = &eager.place_on(device);
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("on_device at {}: {}", at.text(), e.what()));
  }
}
Eager::OnDevice::~OnDevice() {
  eager_.at_ = before_;
  if (trace_) trace_->devices().pop_back();
}

Eager::Place& Eager::place_on(const std::string& device) {
  for (const auto& place : places_)
    if (place->device->name() == device) return *place;
  if (!host_)
    throw Error(Code::not_found,
                fmt::format("there is no device '{}': a scope without an engine has only '{}'",
                            device, places_[0]->device->name()));
  return place_on(host_->eager_device(device));
}

Eager::Place* Eager::place_of(const Device& device) {
  for (const auto& place : places_)
    if (place->device == &device) return place.get();
  return nullptr;
}

Eager::Place& Eager::place_on(Device& device) {
  if (Place* known = place_of(device)) return *known;
  return *places_.emplace_back(std::make_unique<Place>(device));
}

// The device runs behind: its work's errors are attributed to the op that enqueues it now.
void Eager::enqueue(Place& place, const OpDef& op, const Site& site) const {
  constexpr std::size_t kMostBehind = 1024;
  refuse_failed(place);
  if (place.enqueued.size() >= kMostBehind) wait(place);
  place.stream->attribute(place.fault,
                          place.first + static_cast<std::int64_t>(place.enqueued.size()));
  place.enqueued.emplace_back(&op, site);
}

void Eager::wait(Place& place) {
  place.stream->synchronize();
  refuse_failed(place);
  place.first += static_cast<std::int64_t>(place.enqueued.size());
  place.enqueued.clear();
}

void Eager::refuse_failed(const Place& place) {
  if (!place.fault->is_set()) return;
  const auto i = static_cast<std::size_t>(place.fault->origin() - place.first);
  const Status& status = place.fault->status();
  if (i >= place.enqueued.size()) throw Error(status.code(), status.message());
  const auto& [op, site] = place.enqueued[i];
  throw Error(status.code(), fmt::format("{}{} at {}, on {}: {}", op->name, within(site),
                                         site.text(), place.device->name(), status.message()));
}

Value Eager::at_home(const Expr& e) {
  Value value = e.held();
  Place& home = *places_[0];
  bring(value, home);
  const bool is_on_host = value.kind() == Value::Kind::tensor && value.tensor().is_on_host();
  if (!home.device->is_synchronous() && !is_on_host) wait(home);
  return value;
}

void Eager::bring(Value& value, const Place& to) {
  // a scope with one place has no elements elsewhere: `adopt` adds the places of other scopes
  if (value.is_list() && places_.size() == 1) return;
  // a kernel's tensors are copied to its device, and elements of its lists are not; programs on
  // another node take both from the host
  const bool copies = value.is_list() && !to.remote;
  if (!is_elsewhere(value, *to.device, copies)) return;
  if (!value.is_list()) {
    value = on_host(value);
    return;
  }
  List& list = value.list();
  for (std::int64_t i = 0; i < list.length(); ++i) {
    Value element = list.peek(i);
    if (!is_elsewhere(element, *to.device, copies)) continue;
    bring(element, to);
    if (copies && element.kind() == Value::Kind::tensor)
      copy_to_device(element.tensor(), *to.device, *to.stream);
    list.put(i, std::move(element));
  }
}

void Eager::tell(const OpDef& op, const Attrs& attrs, std::span<const Expr> inputs,
                 const Exprs& outputs, const State* state, int number, const Site& site) {
  const BindObserver::Computed firing{op,    attrs,          inputs, outputs,
                                      state, site_for(site), *this,  number};
  for (BindObserver* o = BindObserver::innermost(); o; o = o->outer()) o->computed(firing);
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
  if (auto* remote = dynamic_cast<RemoteDevice*>(t.device()))
    return remote->read(*place_on(*remote).stream, t);
  // A scalar in a device's memory is no inline scalar: it comes back as a vector of one.
  Tensor host = Tensor::empty(t.dtype(), t.shape().is_scalar() ? Shape{1} : t.shape());
  // another scope's device is one more place
  Place& place = place_on(*t.device());
  place.device->copy_to_host(*place.stream, t, View(host));
  wait(place);
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
  std::vector<Expr> arguments;
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
    arguments.push_back(hold(Value(feeds[i])));
  }
  std::vector<Tensor> out;
  for (const Value& v : run_values(program, arguments)) out.push_back(on_host(v));
  return out;
}

std::vector<Value> Eager::run_values(const Program& program, std::span<const Expr> feeds) {
  const Tracing::Suspended untraced;
  std::vector<Value> out;
  for (const Expr& e : replay(program, *this, feeds)) out.push_back(e.held());
  run_.id = host_ ? fresh_run_id() : run_.id + 1;
  ++run_.step;
  return out;
}

Expr Eager::adopt(const Expr& foreign, const Site& site) {
  const bool is_of_graph = !foreign.is_empty() && foreign.reader().depth() > 0;
  if (is_of_graph && !is_looking_) {
    // in a trace both are values of its graph
    if (Tracing* const trace = Tracing::active()) return trace->graph().adopt(foreign, site);
  }
  if (is_looking_ && is_of_graph) return hold(placeholder(foreign.spec()));
  if (foreign.is_empty()) return hold(foreign.held());
  const Value& value = foreign.held();
  const bool is_on_host = value.kind() == Value::Kind::tensor && value.tensor().is_on_host();
  if (!is_of_graph && !is_on_host) {
    // errors of the other scope's work are its own: this one takes a value that is computed
    for (const auto& place : static_cast<Eager&>(foreign.reader()).places_) {
      if (place->device->is_synchronous()) continue;
      if (!place->remote) wait(*place);
      if (value.is_list() && !place_of(*place->device))
        places_.emplace_back(std::make_unique<Place>(*place->device));
    }
  }
  // another scope's value stays the one that it is
  return Expr(this, value, foreign.edge());
}

ValueSpec Eager::spec_of(const Expr& e) const { return spec_of_value(e.held()); }

}  // namespace troupe
