#include <troupe/actors/trace/traced_function.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <shared_mutex>

#include <fmt/format.h>

#include <troupe/controlflow/build.hpp>
#include <troupe/controlflow/function.hpp>
#include <troupe/controlflow/list.hpp>
#include <troupe/controlflow/list_ops.hpp>
#include <troupe/ops/eager/replay.hpp>
#include <troupe/ops/eager/staged.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/tracing.hpp>

namespace troupe::detail {
namespace {

// One thread traces at a time, in all functions: a trace may call other functions, in any order.
std::recursive_mutex& tracing_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

constexpr int kRetracesBeforeWarning = 5;

// One graph of a function, with the values that it captures besides its arguments.
struct Trace {
  std::vector<ValueSpec> arguments;
  std::vector<HostArgument> host;
  const EagerHost* on = nullptr;
  std::shared_ptr<StagedFunction> staged;  // takes arguments and captures, yields results
  Exprs captures;                          // values from outside
  std::vector<bool> yields;                // one a result: is it an expression?
  const Eager* scope = nullptr;            // in which it was traced; it may have ended
  // As a function of graphs that call it, by their ids.
  std::map<std::uint64_t, const FunctionDef*> defined_in;

  bool covers(const Exprs& given) const {
    if (given.size() != arguments.size()) return false;
    for (std::size_t i = 0; i < given.size(); ++i)
      if (!is_covered(given[i], arguments[i])) return false;
    return true;
  }

 private:
  // Without making a spec of an eager tensor: each call asks.
  static bool is_covered(const Expr& e, const ValueSpec& by) {
    if (e.reader().depth() > 0 || by.is_list() || e.held().is_list()) return by.covers(e.spec());
    const Tensor& t = e.held().tensor();
    return t.dtype() == by.dtype && by.shape.covers(t.shape());
  }
};

bool is_same(const std::vector<HostArgument>& a, const std::vector<HostArgument>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const HostArgument& x, const HostArgument& y) { return x.key == y.key; });
}

std::string text_of(const std::vector<ValueSpec>& tensors, const std::vector<HostArgument>& host) {
  std::string text = "(";
  for (const ValueSpec& s : tensors) text += (text.size() > 1 ? ", " : "") + s.text();
  for (std::size_t i = 0; i < host.size(); ++i)
    text += (i == 0 ? (tensors.empty() ? "" : "; ") : ", ") + host[i].text;
  return text + ")";
}

bool differ_in_extents(const ValueSpec& a, const ValueSpec& b) {
  return a.dtype == b.dtype && a.depth == b.depth && a.shape.has_rank() && b.shape.has_rank() &&
         a.shape.rank() == b.shape.rank();
}

}  // namespace

struct TracedFunction::Impl {
  Impl(std::string n, FunctionOptions o, const Site& at)
      : name(fmt::format("function '{}' ({})", n, at.text())), short_name(std::move(n)),
        options(std::move(o)) {}

  [[noreturn]] void refuse(const std::string& why, Code code = Code::invalid_argument) const {
    throw Error(code, name + ": " + why);
  }

  Eager& scope_of(const Operands& tensors) const;
  Exprs in_scope(Reader& reader, const Operands& tensors) const;
  std::vector<ValueSpec> specs_of(const Exprs& arguments) const;
  std::shared_ptr<Trace> find(const Exprs& arguments, const std::vector<HostArgument>& host,
                              const EagerHost* on) const;
  std::shared_ptr<Trace> trace_for(const Exprs& arguments, const std::vector<HostArgument>& host,
                                   const Body& body, Eager& scope, const Graph* caller,
                                   const Site& at);
  std::vector<ValueSpec> relaxed(const std::vector<ValueSpec>& specs,
                                 const std::vector<HostArgument>& host, const EagerHost* on) const;
  std::shared_ptr<Trace> trace(const std::vector<ValueSpec>& specs, const Exprs& arguments,
                               const std::vector<HostArgument>& host, const Body& body,
                               Eager& scope, const Graph* caller, bool may_create,
                               bool& has_created);
  Operands run_recursive(Graph& graph, const std::vector<ValueSpec>& specs, const Exprs& arguments,
                         const Body& body);
  /// The call of the function under way that a call with these arguments recurs to; null: none.
  NamedFunction* recurs(const Graph& caller, const Exprs& arguments,
                        const std::vector<HostArgument>& host) const;
  void add(std::shared_ptr<Trace> made);
  void warn_of_retraces(const Trace& made);
  Exprs call_in(Graph& graph, Trace& trace, const Exprs& arguments, const Site& at) const;
  const FunctionDef& defined_in(Graph& root, Trace& trace) const;

  const std::string name, short_name;
  const FunctionOptions options;
  mutable std::shared_mutex mutex;  // guards traces
  std::vector<std::shared_ptr<Trace>> traces;
  // Graphs that no call uses any more, kept because the code may have kept expressions of them.
  std::vector<std::shared_ptr<StagedGraph>> kept;
  std::atomic<int> count{0};  // these two publish nothing but themselves
  std::atomic<std::uint64_t> evictions{0};
  bool is_warned = false;
  std::map<std::string, Site> created;  // states that the first trace has declared
  // Traces that run their code now; `self` is set while calls may recur to it.
  struct UnderWay {
    const Trace* trace;
    NamedFunction* self = nullptr;
  };
  std::vector<UnderWay> under_way;
};

// ---- arguments

Eager& TracedFunction::Impl::scope_of(const Operands& tensors) const {
  for (const Operand& o : tensors)
    if (o.is_expr() && o.expr().reader().depth() == 0)
      return static_cast<Eager&>(o.expr().reader());
  if (options.scope) return *options.scope;
  if (Eager* innermost = Eager::innermost()) return *innermost;
  refuse("no argument is an eager value, and the thread has no eager scope; make an Eager first",
         Code::failed_precondition);
}

Exprs TracedFunction::Impl::in_scope(Reader& reader, const Operands& tensors) const {
  if (!options.signature.empty() && options.signature.size() != tensors.size())
    refuse(fmt::format("its signature has {} tensors, and it is called with {}",
                       options.signature.size(), tensors.size()));
  Exprs out;
  out.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Operand& o = tensors[i];
    if (o.is_expr()) {
      const Expr& e = o.expr();
      out.push_back(&e.reader() == &reader ? e : reader.adopt(e, o.site()));
    } else if (!o.literal().has_value()) {
      refuse(
          fmt::format("argument {} holds nothing: it is an Expr or a Tensor that was never given "
                      "a value",
                      i));
    } else {
      DType wanted = o.literal().dtype();
      if (o.is_number() && wanted == DType::f64) wanted = DType::f32;
      if (o.is_number() && i < options.signature.size()) wanted = options.signature[i].dtype;
      out.push_back(
          reader.adopt(Expr(nullptr, o.is_number() ? o.number_as(wanted) : o.literal()), o.site()));
    }
    if (i < options.signature.size() && !options.signature[i].covers(out[i].spec()))
      refuse(fmt::format("argument {} is {}, and its signature says {}", i, out[i].spec().text(),
                         options.signature[i].text()));
  }
  return out;
}

std::vector<ValueSpec> TracedFunction::Impl::specs_of(const Exprs& arguments) const {
  if (!options.signature.empty()) return options.signature;
  std::vector<ValueSpec> specs;
  specs.reserve(arguments.size());
  for (const Expr& e : arguments) specs.push_back(e.spec());
  return specs;
}

// ---- finding a trace, or making one

std::shared_ptr<Trace> TracedFunction::Impl::find(const Exprs& arguments,
                                                  const std::vector<HostArgument>& host,
                                                  const EagerHost* on) const {
  const std::shared_lock lock(mutex);
  // the most relaxed ones come last
  for (std::size_t i = traces.size(); i-- > 0;) {
    const Trace& t = *traces[i];
    if (t.on == on && t.covers(arguments) && is_same(t.host, host)) return traces[i];
  }
  return nullptr;
}

// The extents that an earlier trace of the same ranks does not share are unknown.
std::vector<ValueSpec> TracedFunction::Impl::relaxed(const std::vector<ValueSpec>& specs,
                                                     const std::vector<HostArgument>& host,
                                                     const EagerHost* on) const {
  if (!options.relax_shapes || !options.signature.empty()) return specs;
  std::vector<ValueSpec> wide = specs;
  const std::shared_lock lock(mutex);
  for (const std::shared_ptr<Trace>& t : traces) {
    if (t->on != on || t->arguments.size() != specs.size() || !is_same(t->host, host)) continue;
    if (!std::equal(specs.begin(), specs.end(), t->arguments.begin(), differ_in_extents)) continue;
    for (std::size_t i = 0; i < wide.size(); ++i)
      wide[i].shape = wide[i].shape.common(t->arguments[i].shape);
  }
  return wide;
}

std::shared_ptr<Trace> TracedFunction::Impl::trace_for(const Exprs& arguments,
                                                       const std::vector<HostArgument>& host,
                                                       const Body& body, Eager& scope,
                                                       const Graph* caller, const Site&) {
  if (std::shared_ptr<Trace> known = find(arguments, host, scope.host())) return known;
  const std::lock_guard one(tracing_mutex());
  if (std::shared_ptr<Trace> known = find(arguments, host, scope.host())) return known;
  const std::vector<ValueSpec> specs = specs_of(arguments);
  for (const UnderWay& u : under_way)
    if (u.trace->on == scope.host() && u.trace->arguments == specs && is_same(u.trace->host, host))
      refuse(fmt::format(
          "it calls itself{} with arguments {} while it is traced for them, so that the trace "
          "would not end; {}",
          u.self ? " by another traced function" : "", text_of(specs, host),
          u.self ? "let it call itself"
                 : "give FunctionOptions::results, or let a host argument "
                   "change"));
  const std::vector<ValueSpec> wide = relaxed(specs, host, scope.host());
  const bool is_first = count.load(std::memory_order_relaxed) == 0;
  bool has_created = false;
  std::shared_ptr<Trace> made =
      trace(wide, arguments, host, body, scope, caller, is_first, has_created);
  // Code that created states is traced once more, which finds code that does so at each call.
  if (has_created) {
    kept.push_back(made->staged->in);
    made = trace(wide, arguments, host, body, scope, caller, false, has_created);
  }
  add(made);
  warn_of_retraces(*made);
  return made;
}

void TracedFunction::Impl::add(std::shared_ptr<Trace> made) {
  const std::lock_guard lock(mutex);
  if (traces.size() >= std::max<std::size_t>(1, options.max_traces)) {
    traces.erase(traces.begin());
    evictions.fetch_add(1, std::memory_order_relaxed);
  }
  traces.push_back(std::move(made));
  count.fetch_add(1, std::memory_order_relaxed);
}

void TracedFunction::Impl::warn_of_retraces(const Trace& made) {
  if (is_warned || count.load(std::memory_order_relaxed) <= kRetracesBeforeWarning + 1) return;
  is_warned = true;
  std::string changed;
  {
    const std::shared_lock lock(mutex);
    if (traces.size() < 2)
      changed = fmt::format("no earlier graph is kept (max_traces is {})", options.max_traces);
    const Trace& before = traces.size() < 2 ? made : *traces[traces.size() - 2];
    for (std::size_t i = 0; i < made.arguments.size() && changed.empty(); ++i)
      if (i >= before.arguments.size() || !(made.arguments[i] == before.arguments[i]))
        changed = fmt::format("tensor argument {} changed from {} to {}", i,
                              i < before.arguments.size() ? before.arguments[i].text() : "none",
                              made.arguments[i].text());
    for (std::size_t i = 0; i < made.host.size() && changed.empty(); ++i)
      if (i >= before.host.size() || made.host[i].key != before.host[i].key)
        changed =
            fmt::format("host argument {} changed from {} to {}", i,
                        i < before.host.size() ? before.host[i].text : "none", made.host[i].text);
  }
  if (changed.empty()) changed = "the scope changed";
  const std::string text = fmt::format(
      "{} was traced {} times, the last time because {}; pass what changes as a tensor, or give a "
      "signature",
      name, count.load(std::memory_order_relaxed), changed);
  if (options.warn) options.warn(text);
  else std::fprintf(stderr, "troupe: %s\n", text.c_str());
}

std::shared_ptr<Trace> TracedFunction::Impl::trace(const std::vector<ValueSpec>& specs,
                                                   const Exprs& arguments,
                                                   const std::vector<HostArgument>& host,
                                                   const Body& body, Eager& scope,
                                                   const Graph* caller, bool may_create,
                                                   bool& has_created) {
  auto made = std::make_shared<Trace>();
  made->arguments = specs;
  made->host = host;
  made->on = scope.host();
  made->scope = &scope;
  auto in = std::make_shared<StagedGraph>(scope.host());
  Graph& graph = in->graph;
  made->staged = std::make_shared<StagedFunction>(name, in);
  StagedFunction& staged = *made->staged;
  staged.keep = Keep::effects;
  Exprs inside;
  for (const ValueSpec& s : specs) {
    inside.push_back(graph.argument(s, Site()));
    staged.inputs.push_back(inside.back().edge());
  }

  std::vector<std::pair<StateSpec, Expr>> initial;
  Tracing::Callbacks callbacks;
  callbacks.capture = capture_into(staged, made->captures);
  callbacks.declared = [&](const StateSpec& spec, const Site& site) {
    const auto first = created.find(spec.name);
    if (may_create) {
      has_created = true;
      created.emplace(spec.name, site);
      return;
    }
    refuse(fmt::format("its code creates '{}' at {} in a trace after the first{}; create states "
                       "once, outside of the function or behind a test that it was done",
                       spec.name, site.text(),
                       first == created.end()
                           ? std::string()
                           : fmt::format(", where it was created at {}", first->second.text())),
           Code::failed_precondition);
  };
  callbacks.initialized = [&](const StateSpec& spec, const Expr& value, const Site&) {
    initial.emplace_back(spec, value);
  };

  Operands out;
  struct Until {
    std::vector<UnderWay>& all;
    ~Until() { all.pop_back(); }
  };
  try {
    under_way.push_back({made.get()});
    const Until until{under_way};
    const Tracing tracing(graph, caller, name, std::move(callbacks));
    out = options.results.empty() ? body(inside) : run_recursive(graph, specs, inside, body);
    for (std::size_t i = 0; i < out.size(); ++i) {
      Operand& o = out[i];
      const bool is_nothing = !o.is_expr() && !o.literal().has_value();
      made->yields.push_back(!is_nothing);
      if (is_nothing) continue;
      Expr e;
      if (!o.is_expr())
        e = graph.adopt(Expr(nullptr, o.is_number() && o.literal().dtype() == DType::f64
                                          ? o.number_as(DType::f32)
                                          : o.literal()),
                        o.site());
      else e = &o.expr().reader() == &graph ? o.expr() : graph.adopt(o.expr(), o.site());
      staged.outputs.push_back(e.edge());
    }
  } catch (...) {
    // The code may have kept expressions of the trace; using one throws an error that names it.
    graph.seal_as(name + ", whose trace has failed");
    kept.push_back(in);
    throw;
  }
  graph.seal_as(name);

  find_reads(staged, scope);
  // Variables whose first value is an expression get it now, from the arguments of this call.
  if (!initial.empty()) {
    auto values = std::make_shared<StagedFunction>(name, in);
    values->inputs = staged.inputs;
    for (const auto& [spec, value] : initial) values->outputs.push_back(value.edge());
    Exprs inputs = arguments;
    inputs.insert(inputs.end(), made->captures.begin(), made->captures.end());
    const Exprs first = call_staged(values, inputs, scope);
    for (std::size_t k = 0; k < first.size(); ++k) {
      const StateSpec& spec = initial[k].first;
      if (auto* here = dynamic_cast<VariableState*>(scope.state_of(spec).get()))
        here->replace(scope.on_host(first[k]));
      else Variable(&scope, scope.declare(spec, Site())).assign(first[k]);
    }
  }
  return made;
}

// ---- recursion

// The code becomes a function of the graph, which calls inside of the code find.
Operands TracedFunction::Impl::run_recursive(Graph& graph, const std::vector<ValueSpec>& specs,
                                             const Exprs& arguments, const Body& body) {
  NamedFunction self(graph, short_name + "/recursion", specs, options.results, {}, Site());
  under_way.back().self = &self;
  self.define(
      [&](const Exprs& parameters) {
        Operands out = body(parameters);
        for (std::size_t i = 0; i < out.size(); ++i)
          if (!out[i].is_expr() && !out[i].literal().has_value())
            refuse(
                fmt::format("result {} is an empty expression, and its results are declared", i));
        return out;
      },
      Site());
  under_way.back().self = nullptr;
  Operands in, out;
  for (const Expr& e : arguments) in.emplace_back(e, Site());
  for (const Expr& e : self.call(in, Site())) out.emplace_back(e, Site());
  return out;
}

NamedFunction* TracedFunction::Impl::recurs(const Graph& caller, const Exprs& arguments,
                                            const std::vector<HostArgument>& host) const {
  for (const UnderWay& u : under_way)
    if (u.self && &u.trace->staged->in->graph == &caller && u.trace->covers(arguments) &&
        is_same(u.trace->host, host))
      return u.self;
  return nullptr;
}

// ---- a function of a graph that calls it

// The function's program as a function of the outermost graph `root`.
const FunctionDef& TracedFunction::Impl::defined_in(Graph& root, Trace& trace) const {
  const FunctionDef*& known = trace.defined_in[root.id()];
  if (known) return *known;
  const StagedFunction& staged = *trace.staged;
  const std::lock_guard lock(staged.in->mutex);
  const Graph& from = staged.in->graph;
  auto def = std::make_shared<FunctionDef>();
  std::size_t others = 0;
  for (const auto& f : root.functions())
    others += f->name == short_name || f->name.starts_with(short_name + "#");
  def->name = others == 0 ? short_name : fmt::format("{}#{}", short_name, others);
  for (Edge e : staged.inputs) def->parameters.push_back(from.spec(e));
  def->parameters.push_back(any_list());  // the environment
  for (Edge e : staged.outputs) def->results.push_back(from.spec(e));
  FunctionDef& to = root.add_function(std::move(def));
  auto body = std::make_shared<SubGraph>(Graph::detached(root, "the body of " + name));
  Exprs arguments;
  for (const ValueSpec& s : to.parameters) {
    arguments.push_back(body->graph.argument(s, Site()));
    body->inputs.push_back(arguments.back().edge());
  }
  body->graph.take_in_from(
      body->inputs.back(), [n = name](Graph&, const Expr&, const Site& site) -> Expr {
        throw Error(Code::internal,
                    fmt::format("{}: a value from outside is used at {}", n, site.text()));
      });
  arguments.pop_back();
  const Program program = prune(from, staged.inputs, staged.outputs, staged.keep);
  for (const Expr& e : replay(program, body->graph, arguments)) body->outputs.push_back(e.edge());
  body->graph.seal();
  root.define(to, body);
  known = &to;
  return to;
}

Exprs TracedFunction::Impl::call_in(Graph& graph, Trace& trace, const Exprs& arguments,
                                    const Site& at) const {
  Graph& root = graph.root();
  const FunctionDef& f = defined_in(root, trace);
  Graph& here = root.current();
  Exprs inputs = arguments;
  for (const Expr& e : trace.captures)
    inputs.push_back(&e.reader() == &here ? e : here.adopt(e, at));
  if (Graph* of = here.function_body()) {
    const Expr mine = of->expr(of->environment());
    inputs.push_back(of == &here ? mine : here.adopt(mine, at));
  } else {
    inputs.push_back(list_of_any(here));
  }
  return bind_call(here, f, inputs, at);
}

// ---- the calls of users

TracedFunction::TracedFunction(std::string name, FunctionOptions options, const Site& at)
    : impl_(std::make_unique<Impl>(std::move(name), std::move(options), at)) {
  if (impl_->short_name.empty())
    throw Error(Code::invalid_argument,
                fmt::format("a traced function ({}) needs a name", at.text()));
}
TracedFunction::~TracedFunction() = default;

Exprs TracedFunction::call(const Operands& tensors, const std::vector<HostArgument>& host,
                           const Body& body, const Site& at) {
  // In a trace, or with values of a graph, it becomes a function of that graph.
  Graph* caller = nullptr;
  if (const Tracing* trace = Tracing::active()) caller = &trace->graph();
  for (const Operand& o : tensors)
    if (!caller && o.is_expr() && o.expr().reader().depth() > 0)
      caller = &static_cast<Graph&>(o.expr().reader()).root();
  Eager& scope = impl_->scope_of(tensors);
  Exprs made;
  std::shared_ptr<Trace> trace;
  if (caller) {
    const std::lock_guard one(tracing_mutex());
    const Exprs arguments = impl_->in_scope(caller->current(), tensors);
    if (NamedFunction* self = impl_->recurs(*caller, arguments, host)) {
      Operands operands;
      for (const Expr& e : arguments) operands.emplace_back(e, at);
      return self->call(operands, at);
    }
    trace = impl_->trace_for(arguments, host, body, scope, caller, at);
    made = impl_->call_in(*caller, *trace, arguments, at);
  } else {
    Exprs inputs = impl_->in_scope(scope, tensors);
    trace = impl_->trace_for(inputs, host, body, scope, nullptr, at);
    inputs.insert(inputs.end(), trace->captures.begin(), trace->captures.end());
    made = call_staged(trace->staged, inputs, scope);
  }
  if (made.size() == trace->yields.size()) return made;
  Exprs out;
  std::size_t next = 0;
  for (const bool is_there : trace->yields) out.push_back(is_there ? made[next++] : Expr());
  return out;
}

int TracedFunction::traces() const { return impl_->count.load(std::memory_order_relaxed); }
std::uint64_t TracedFunction::evictions() const {
  return impl_->evictions.load(std::memory_order_relaxed);
}

std::vector<std::string> TracedFunction::signatures() const {
  const std::shared_lock lock(impl_->mutex);
  std::vector<std::string> out;
  for (const std::shared_ptr<Trace>& t : impl_->traces)
    out.push_back(text_of(t->arguments, t->host));
  return out;
}

std::shared_ptr<const Graph> TracedFunction::graph(const Operands& tensors,
                                                   const std::vector<HostArgument>& host,
                                                   const Body& body, const Site& at) {
  Eager& scope = impl_->scope_of(tensors);
  const std::shared_ptr<Trace> trace =
      impl_->trace_for(impl_->in_scope(scope, tensors), host, body, scope, nullptr, at);
  return {trace->staged->in, &trace->staged->in->graph};
}

std::string TracedFunction::explain(const Operands& tensors, const std::vector<HostArgument>& host,
                                    const Body& body, const Site& at) {
  Eager& scope = impl_->scope_of(tensors);
  const std::shared_ptr<Trace> trace =
      impl_->trace_for(impl_->in_scope(scope, tensors), host, body, scope, nullptr, at);
  return explain_staged(*trace->staged);
}

TracedProgram TracedFunction::program(const Operands& tensors,
                                      const std::vector<HostArgument>& host, const Body& body,
                                      const Site& at) {
  Eager& scope = impl_->scope_of(tensors);
  const std::shared_ptr<Trace> trace =
      impl_->trace_for(impl_->in_scope(scope, tensors), host, body, scope, nullptr, at);
  return {impl_->short_name, trace->staged, trace->captures, trace->yields, &scope};
}

TracedProgram TracedFunction::only_program() {
  const std::shared_lock lock(impl_->mutex);
  if (impl_->traces.size() != 1)
    impl_->refuse(fmt::format("it has {} graphs, of which one is asked for; give arguments that "
                              "choose one",
                              impl_->traces.size()),
                  Code::failed_precondition);
  const Trace& trace = *impl_->traces[0];
  // the scope that traced may have ended; scopes of one host share their states
  Eager& scope = impl_->scope_of(Operands());
  if (&scope != trace.scope && (!trace.on || scope.host() != trace.on))
    impl_->refuse(
        "its graph was traced in another scope than the one in use; give arguments of "
        "the scope that has its variables",
        Code::failed_precondition);
  return {impl_->short_name, trace.staged, trace.captures, trace.yields, &scope};
}

}  // namespace troupe::detail
