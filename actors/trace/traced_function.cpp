#include <troupe/actors/trace/traced_function.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <shared_mutex>

#include <fmt/format.h>

#include <troupe/actors/trace/extent_use.hpp>
#include <troupe/actors/trace/trace.hpp>
#include <troupe/controlflow/build.hpp>
#include <troupe/controlflow/function.hpp>
#include <troupe/controlflow/list.hpp>
#include <troupe/controlflow/list_ops.hpp>
#include <troupe/ops/eager/bind_observer.hpp>
#include <troupe/ops/eager/replay.hpp>
#include <troupe/ops/eager/staged.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/no_value.hpp>
#include <troupe/ops/graph/tracing.hpp>

namespace troupe::detail {
namespace {

constexpr int kRetracesBeforeWarning = 5;
// Traces of one thread inside one another. Each takes some kilobytes of its stack.
constexpr int kMostTracesAtOnce = 256;
constexpr std::size_t kMostKept = 256;  // graphs that no call uses

}  // namespace

struct TracedFunction::Impl {
  // States that start as an expression of the trace does.
  using Initial = std::vector<std::pair<StateSpec, Expr>>;

  Impl(std::string n, FunctionOptions o, const Site& at)
      : name(fmt::format("function '{}' ({})", n, at.text())), short_name(std::move(n)),
        made_at(at), options(std::move(o)) {}

  [[noreturn]] void refuse(const std::string& why, Code code = Code::invalid_argument) const {
    throw Error(code, name + ": " + why);
  }

  Eager& scope_of(const Operands& tensors) const;
  Exprs in_scope(Reader& reader, const Operands& tensors) const;
  std::vector<ValueSpec> specs_of(const Exprs& arguments) const;
  std::shared_ptr<Trace> find(const Exprs& arguments, const ArgumentForm& form,
                              const Where& where) const;
  std::shared_ptr<Trace> trace_for(const Exprs& arguments, const ArgumentForm& form,
                                   const Body& body, Eager& scope, const Graph* caller,
                                   const Site& at);
  std::vector<ValueSpec> relaxed(const std::vector<ValueSpec>& specs, const ArgumentForm& form,
                                 const Where& where) const;
  std::shared_ptr<Trace> trace(const std::vector<ValueSpec>& specs, const Exprs& arguments,
                               const ArgumentForm& form, const Where& where, const Body& body,
                               Eager& scope, const Graph* caller, bool may_create,
                               bool& has_created);
  std::exception_ptr give_first_values(const Trace& made, const Exprs& arguments,
                                       const Initial& initial, Eager& scope) const;
  void keep(std::shared_ptr<StagedGraph> graph) {
    kept.push_back(std::move(graph));
    if (kept.size() > kMostKept) kept.pop_front();
  }
  Operands run_recursive(Graph& graph, const std::vector<ValueSpec>& specs, const Exprs& arguments,
                         const Body& body);
  /// The call of the function under way that a call with these arguments recurs to; null: none.
  NamedFunction* recurs(const Graph& caller, const Exprs& arguments,
                        const ArgumentForm& form) const;
  bool has_extent_in_code(const Trace& made, const ArgumentForm& form, const Where& where) const;
  void add(std::shared_ptr<Trace> made);
  std::string reason_for(const Trace& made) const;
  std::string explain_cache(const Trace& called) const;
  void warn_of_retraces(const Trace& made);
  Exprs call_in(Graph& graph, Trace& trace, const Exprs& arguments, Eager& scope,
                const Site& at) const;
  const FunctionDef& defined_in(Graph& root, Trace& trace) const;

  const std::string name, short_name;
  const Site made_at;
  const FunctionOptions options;
  mutable std::shared_mutex mutex;  // guards traces
  std::vector<std::shared_ptr<Trace>> traces;
  // Graphs that no call uses any more. The code may have kept expressions of them, whose use is an
  // error that names the function as long as the graph is here.
  std::deque<std::shared_ptr<StagedGraph>> kept;
  std::atomic<int> count{0};  // these two publish nothing but themselves
  std::atomic<std::uint64_t> evictions{0};
  bool is_warned = false;
  // host code computes with extents, so each shape has a trace; guarded by Tracing::mutex()
  bool extents_matter = false;
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
  if (const Tracing* around = Tracing::active(); around && around->scope()) return *around->scope();
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
      refuse(fmt::format("argument {} is {}, and its signature requires {}", i,
                         out[i].spec().text(), options.signature[i].text()));
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

std::shared_ptr<Trace> TracedFunction::Impl::find(const Exprs& arguments, const ArgumentForm& form,
                                                  const Where& where) const {
  const std::shared_lock lock(mutex);
  // the most relaxed ones come last
  for (std::size_t i = traces.size(); i-- > 0;) {
    const Trace& t = *traces[i];
    if (t.runs(where) && t.covers(arguments) && t.form.is_same(form)) return traces[i];
  }
  return nullptr;
}

// The extents that an earlier trace of the same ranks does not share are unknown.
std::vector<ValueSpec> TracedFunction::Impl::relaxed(const std::vector<ValueSpec>& specs,
                                                     const ArgumentForm& form,
                                                     const Where& where) const {
  if (!options.relax_shapes || extents_matter || !options.signature.empty()) return specs;
  std::vector<ValueSpec> wide = specs;
  const std::shared_lock lock(mutex);
  for (const std::shared_ptr<Trace>& t : traces) {
    if (!t->runs(where) || t->arguments.size() != specs.size() || !t->form.is_same(form)) continue;
    if (!std::equal(specs.begin(), specs.end(), t->arguments.begin(), differ_in_extents)) continue;
    for (std::size_t i = 0; i < wide.size(); ++i)
      wide[i].shape = wide[i].shape.common(t->arguments[i].shape);
  }
  return wide;
}

std::shared_ptr<Trace> TracedFunction::Impl::trace_for(const Exprs& arguments,
                                                       const ArgumentForm& form, const Body& body,
                                                       Eager& scope, const Graph* caller,
                                                       const Site&) {
  const Where where = where_of(scope);
  if (std::shared_ptr<Trace> known = find(arguments, form, where)) return known;
  const std::lock_guard one(Tracing::mutex());
  if (std::shared_ptr<Trace> known = find(arguments, form, where)) return known;
  const std::vector<ValueSpec> specs = specs_of(arguments);
  for (const UnderWay& u : under_way)
    if (u.trace->where.is_same(where) && u.trace->arguments == specs && u.trace->form.is_same(form))
      refuse(fmt::format(
          "it calls itself{} with arguments {} while it is traced for them, so that the trace "
          "would not end; {}",
          u.self ? " by another traced function" : "", text_of(specs, form.host),
          u.self ? "let it call itself"
                 : "give FunctionOptions::results, or let a host argument "
                   "change"));
  const std::vector<ValueSpec> wide = relaxed(specs, form, where);
  const bool is_first = count.load(std::memory_order_relaxed) == 0;
  bool has_created = false;
  std::shared_ptr<Trace> made;
  if (!(wide == specs)) {
    try {
      made = trace(wide, arguments, form, where, body, scope, caller, is_first, has_created);
      extents_matter = has_extent_in_code(*made, form, where);
    } catch (const Error&) { extents_matter = true; }  // the code may need the extents
    if (extents_matter) made.reset();
  }
  if (!made)
    made = trace(specs, arguments, form, where, body, scope, caller, is_first, has_created);
  // Code that created states is traced once more, which finds code that does so at each call.
  if (has_created) {
    keep(made->staged->in);
    made = trace(std::vector(made->arguments), arguments, form, where, body, scope, caller, false,
                 has_created);
  }
  made->reason = reason_for(*made);
  add(made);
  warn_of_retraces(*made);
  return made;
}

// Compares the trace with one whose extents are known.
bool TracedFunction::Impl::has_extent_in_code(const Trace& made, const ArgumentForm& form,
                                              const Where& where) const {
  const std::shared_lock lock(mutex);
  for (const std::shared_ptr<Trace>& t : traces) {
    if (!t->runs(where) || t->arguments.size() != made.arguments.size() || !t->form.is_same(form))
      continue;
    if (std::equal(made.arguments.begin(), made.arguments.end(), t->arguments.begin(),
                   differ_in_extents))
      return !line_with_extent(t->staged->in->graph, made.staged->in->graph).empty();
  }
  return false;
}

void TracedFunction::Impl::add(std::shared_ptr<Trace> made) {
  const std::lock_guard lock(mutex);
  if (traces.size() >= std::max<std::size_t>(1, options.max_traces)) {
    keep(traces.front()->staged->in);
    traces.erase(traces.begin());
    evictions.fetch_add(1, std::memory_order_relaxed);
  }
  traces.push_back(std::move(made));
  count.fetch_add(1, std::memory_order_relaxed);
}

// Compares it with the graph that was made before it.
std::string TracedFunction::Impl::reason_for(const Trace& made) const {
  const std::shared_lock lock(mutex);
  if (traces.empty()) return "it was called for the first time";
  const Trace& before = *traces.back();
  for (std::size_t i = 0; i < made.arguments.size(); ++i)
    if (i >= before.arguments.size() || !before.arguments[i].covers(made.arguments[i]))
      return fmt::format("tensor argument {} changed from {} to {}", i,
                         i < before.arguments.size() ? before.arguments[i].text() : "none",
                         made.arguments[i].text());
  const std::vector<HostArgument>&is = made.form.host, &was = before.form.host;
  for (std::size_t i = 0; i < is.size(); ++i)
    if (i >= was.size() || !(is[i] == was[i]))
      return fmt::format("host argument {} changed from {} to {}", i,
                         i < was.size() ? was[i].text : "none", is[i].text);
  if (!made.form.is_same(before.form)) return "the types or the structure of the arguments changed";
  return "the scope changed";
}

// One line a graph.
std::string TracedFunction::Impl::explain_cache(const Trace& called) const {
  const std::shared_lock lock(mutex);
  std::string text = fmt::format("{}: {} of {} graphs are kept\n", name, traces.size(),
                                 count.load(std::memory_order_relaxed));
  for (const std::shared_ptr<Trace>& t : traces)
    text += fmt::format("{} {}, traced because {}\n", t.get() == &called ? "*" : " ",
                        text_of(t->arguments, t->form.host), t->reason);
  return text;
}

void TracedFunction::Impl::warn_of_retraces(const Trace& made) {
  if (is_warned || count.load(std::memory_order_relaxed) <= kRetracesBeforeWarning + 1) return;
  is_warned = true;
  const std::string text = fmt::format(
      "{} was traced {} times, the last time because {}; pass what changes as a tensor, or give a "
      "signature",
      name, count.load(std::memory_order_relaxed), made.reason);
  if (options.warn) options.warn(text);
  else std::fprintf(stderr, "troupe: %s\n", text.c_str());
}

std::shared_ptr<Trace> TracedFunction::Impl::trace(const std::vector<ValueSpec>& specs,
                                                   const Exprs& arguments, const ArgumentForm& form,
                                                   const Where& where, const Body& body,
                                                   Eager& scope, const Graph* caller,
                                                   bool may_create, bool& has_created) {
  static thread_local int depth = 0;
  struct Deeper {
    Deeper() { ++depth; }
    ~Deeper() { --depth; }
  } const deeper;
  if (depth > kMostTracesAtOnce)
    refuse(fmt::format("it is traced inside of {} other traces; a recursion over a host argument "
                       "must end, and FunctionOptions::results makes one over tensors a loop",
                       kMostTracesAtOnce),
           Code::resource_exhausted);
  auto made = std::make_shared<Trace>();
  made->arguments = specs;
  made->ends.assign(form.ends.begin(), form.ends.end());
  made->form = form;
  made->form.ends = made->ends;
  made->where = where;
  made->scope = &scope;
  auto in = std::make_shared<StagedGraph>(scope.host());
  Graph& graph = in->graph;
  made->staged = std::make_shared<StagedFunction>(name, in);
  StagedFunction& staged = *made->staged;
  staged.keep = Keep::effects;
  Exprs inside;
  for (const ValueSpec& s : specs) {
    inside.push_back(graph.argument(s, made_at));
    staged.inputs.push_back(inside.back().edge());
  }

  Initial initial;
  Tracing::Callbacks callbacks;
  callbacks.capture = capture_into(staged, made->captures);
  callbacks.declared = [&](const StateSpec& spec, const Site& site) {
    const auto first = created.find(spec.name);
    if (may_create) {
      has_created = true;
      created.emplace(spec.name, site);
      return;
    }
    std::string before;
    if (first != created.end()) {
      before = fmt::format(", where it was created at {}", first->second.text());
    } else {
      for (const auto& [other, line] : created)
        before += fmt::format("{} '{}' at {}", before.empty() ? ", which created" : ",", other,
                              line.text());
    }
    refuse(fmt::format("its code creates '{}' at {} in a trace after the first{}; create states "
                       "once, outside of the function or behind a test that it was done",
                       spec.name, site.text(), before),
           Code::failed_precondition);
  };
  if (caller)
    callbacks.starts_as_expression = [&](const std::string& variable, const Site& site) {
      refuse(fmt::format("its code creates '{}' at {} from an expression, which has no value while "
                         "another function or a graph that calls it is built; call it once before, "
                         "or give a Tensor or an Initializer",
                         variable, site.text()),
             Code::failed_precondition);
    };
  callbacks.initialized = [&](const StateSpec& spec, const Expr& value, const Site&) {
    // in no scope of the host may it be read before
    if (auto* here = dynamic_cast<VariableState*>(scope.state_of(spec).get())) drop_value(*here);
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
    Tracing tracing(graph, caller, name, std::move(callbacks), &scope);
    tracing.devices() = where.devices;
    const DeviceScopes on(graph, where.devices);
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
    // and variables, whose first values do not depend on what has failed
    (void)give_first_values(*made, arguments, initial, scope);
    keep(in);
    throw;
  }
  graph.seal_as(name);
  staged.end = graph.size();
  for (Expr& e : made->captures)
    if (e.reader().depth() == 0)
      e = Expr(nullptr, (&e.reader() == &scope ? e : scope.adopt(e, Site())).held(), e.edge());

  find_reads(staged, scope);
  if (const std::exception_ptr e = give_first_values(*made, arguments, initial, scope)) {
    keep(in);
    std::rethrow_exception(e);
  }
  return made;
}

// Variables whose first value is an expression get it from the arguments of this call. A variable
// whose value cannot be computed has none. Returns the first error.
std::exception_ptr TracedFunction::Impl::give_first_values(const Trace& made,
                                                           const Exprs& arguments,
                                                           const Initial& initial,
                                                           Eager& scope) const {
  const BindObserver::Paused untold;
  std::exception_ptr failed;
  const StagedFunction& staged = *made.staged;
  Exprs inputs = arguments;
  for (const Expr& e : captured_by(scope, made.captures)) inputs.push_back(e);
  for (const auto& [spec, value] : initial) {
    try {
      auto first = std::make_shared<StagedFunction>(name, staged.in);
      first->inputs = staged.inputs;
      first->outputs = {value.edge()};
      const Expr is = call_staged(first, inputs, scope)[0];
      if (auto* here = dynamic_cast<VariableState*>(scope.state_of(spec).get()))
        here->replace(scope.on_host(is));
      else Variable(&scope, scope.declare(spec, Site())).assign(is);
    } catch (const Error& e) {
      scope.refuse_reads(spec.name, fmt::format("the computation of its first value in {} has "
                                                "failed ({})",
                                                name, e.what()));
      if (!failed) failed = std::current_exception();
    }
  }
  return failed;
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
                                            const ArgumentForm& form) const {
  for (const UnderWay& u : under_way)
    if (u.self && &u.trace->staged->in->graph == &caller && u.trace->covers(arguments) &&
        u.trace->form.is_same(form))
      return u.self;
  return nullptr;
}

// ---- a function of a graph that calls it

// The function's program as a function of the outermost graph `root`.
const FunctionDef& TracedFunction::Impl::defined_in(Graph& root, Trace& trace) const {
  if (const auto known = trace.defined_in.find(root.id()); known != trace.defined_in.end())
    if (const std::shared_ptr<const FunctionDef> f = known->second.lock()) return *f;
  std::erase_if(trace.defined_in, [](const auto& entry) { return entry.second.expired(); });
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
  const std::weak_ptr<const FunctionDef> weak = def;
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
  const Program program = program_of(staged);
  for (const Expr& e : replay(program, body->graph, arguments)) body->outputs.push_back(e.edge());
  body->graph.seal();
  root.define(to, body);
  trace.defined_in[root.id()] = weak;
  return to;
}

Exprs TracedFunction::Impl::call_in(Graph& graph, Trace& trace, const Exprs& arguments,
                                    Eager& scope, const Site& at) const {
  Graph& root = graph.root();
  const FunctionDef& f = defined_in(root, trace);
  Graph& here = root.current();
  Exprs inputs = arguments;
  for (const Expr& e : captured_by(scope, trace.captures))
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

Exprs TracedFunction::call(const Operands& tensors, const ArgumentForm& form, const Body& body,
                           const Site& at) {
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
    const std::lock_guard one(Tracing::mutex());
    const Exprs arguments = impl_->in_scope(caller->current(), tensors);
    if (NamedFunction* self = impl_->recurs(*caller, arguments, form)) {
      Operands operands;
      for (const Expr& e : arguments) operands.emplace_back(e, at);
      return self->call(operands, at);
    }
    trace = impl_->trace_for(arguments, form, body, scope, caller, at);
    made = impl_->call_in(*caller, *trace, arguments, scope, at);
  } else {
    Exprs inputs = impl_->in_scope(scope, tensors);
    trace = impl_->trace_for(inputs, form, body, scope, nullptr, at);
    for (const Expr& e : trace->captures)
      inputs.push_back(e.is_empty() ? Expr(&scope, e.held(), e.edge()) : e);
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
    out.push_back(text_of(t->arguments, t->form.host));
  return out;
}

std::shared_ptr<const Graph> TracedFunction::graph(const Operands& tensors,
                                                   const ArgumentForm& form, const Body& body,
                                                   const Site& at) {
  Eager& scope = impl_->scope_of(tensors);
  const std::shared_ptr<Trace> trace =
      impl_->trace_for(impl_->in_scope(scope, tensors), form, body, scope, nullptr, at);
  return {trace->staged->in, &trace->staged->in->graph};
}

std::string TracedFunction::explain(const Operands& tensors, const ArgumentForm& form,
                                    const Body& body, const Site& at) {
  Eager& scope = impl_->scope_of(tensors);
  const std::shared_ptr<Trace> trace =
      impl_->trace_for(impl_->in_scope(scope, tensors), form, body, scope, nullptr, at);
  return impl_->explain_cache(*trace) + explain_staged(*trace->staged);
}

TracedProgram TracedFunction::program(const Operands& tensors, const ArgumentForm& form,
                                      const Body& body, const Site& at) {
  Eager& scope = impl_->scope_of(tensors);
  const std::shared_ptr<Trace> trace =
      impl_->trace_for(impl_->in_scope(scope, tensors), form, body, scope, nullptr, at);
  return {impl_->short_name, trace->staged, captured_by(scope, trace->captures), trace->yields,
          &scope};
}

TracedProgram TracedFunction::only_program() {
  const std::shared_lock lock(impl_->mutex);
  if (impl_->traces.size() != 1)
    impl_->refuse(
        fmt::format("it has {} graphs and one is requested; give arguments that choose one",
                    impl_->traces.size()),
        Code::failed_precondition);
  const Trace& trace = *impl_->traces[0];
  // the scope that traced may have ended; scopes of one host share their states
  Eager& scope = impl_->scope_of(Operands());
  if (&scope != trace.scope && (!trace.where.host || scope.host() != trace.where.host))
    impl_->refuse(
        "its graph was traced in another scope than the one in use; give arguments of "
        "the scope that has its variables",
        Code::failed_precondition);
  return {impl_->short_name, trace.staged, captured_by(scope, trace.captures), trace.yields,
          &scope};
}

}  // namespace troupe::detail
