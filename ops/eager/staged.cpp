#include <troupe/ops/eager/staged.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include <troupe/ops/eager/bind_observer.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/subgraph.hpp>
#include <troupe/ops/graph/tracing.hpp>

namespace troupe::detail {
namespace {

std::shared_ptr<StagedProgram> prepared(StagedFunction& f) {
  const std::lock_guard lock(f.in->mutex);
  if (!f.program) {
    const Program own = program_of(f);
    f.program = f.in->host->stage(own.graph, own.feeds, own.fetches, f.keep);
  }
  return f.program;
}

// The program on the device of another node; null: it does not run there alone.
Kernel* prepared_there(StagedFunction& f, RemoteDevice& device) {
  const std::lock_guard lock(f.in->mutex);
  const auto known = f.there.find(&device);
  if (known != f.there.end()) return known->second.get();
  const Program own = program_of(f);
  return f.there.emplace(&device, device.stage(own.graph, own.feeds, own.fetches, f.keep))
      .first->second.get();
}

void add_reads(const Graph& graph, std::set<std::int32_t>& states,
               std::set<const FunctionDef*>& seen) {
  for (const Node& node : graph.nodes()) {
    if (node.op->name == "ReadVariable") states.insert(node.state);
    for (const auto& sub : subgraphs_of(node)) add_reads(sub->graph, states, seen);
    const FunctionDef* f = function_of(node);
    if (f && f->body && seen.insert(f).second) add_reads(f->body->graph, states, seen);
  }
}

// Without a host the program is replayed, node by node, on the calling thread.
std::vector<Value> replayed(StagedFunction& f, std::span<const Expr> inputs, Eager& scope) {
  std::optional<Program> program;
  {
    const std::lock_guard lock(f.in->mutex);
    program = program_of(f);
  }
  return scope.run_values(*program, inputs);
}

}  // namespace

// The graph grows by gradients, whose effects are those of other functions.
Program program_of(const StagedFunction& f) {
  const Graph& graph = f.in->graph;
  std::vector<Edge> roots = f.outputs;
  if (f.keep == Keep::effects)
    for (std::int32_t id = f.first; id < std::min(f.end, graph.size()); ++id)
      if (has_effect(graph.node(id))) roots.push_back({id, 0});
  Program program = prune(graph, f.inputs, roots);
  program.fetches.resize(f.outputs.size());
  program.graph.reserve_origins(graph.origins());
  return program;
}

std::function<Expr(const Expr&, const Site&)> capture_into(StagedFunction& function,
                                                           Exprs& captures) {
  using Key = std::pair<const Reader*, Edge>;
  return [&function, &captures, known = std::map<Key, Expr>()](const Expr& outside,
                                                               const Site& site) mutable {
    const bool is_eager = outside.reader().depth() == 0;
    Expr& input = known[{is_eager ? nullptr : &outside.reader(), outside.edge()}];
    if (input.is_empty()) {
      input = function.in->graph.argument(outside.spec(), site);
      captures.push_back(outside);
      function.inputs.push_back(input.edge());
    }
    return input;
  };
}

void find_reads(StagedFunction& function, Eager& scope) {
  const Graph& graph = function.in->graph;
  std::set<std::int32_t> read;
  std::set<const FunctionDef*> seen;
  add_reads(graph, read, seen);
  for (const std::int32_t i : read) {
    const StateSpec& spec = graph.states()[static_cast<std::size_t>(i)];
    if (!is_floating(spec.values[0].dtype) && !is_complex(spec.values[0].dtype)) continue;
    scope.resolve(spec);
    function.reads.push_back({i, spec});
  }
}

Exprs call_code(std::string name, const std::function<Exprs(Graph&)>& code, Eager& scope) {
  auto in = std::make_shared<StagedGraph>(scope.host());
  auto function = std::make_shared<StagedFunction>(name, in);
  Exprs captures;
  {
    Tracing::Callbacks callbacks;
    callbacks.capture = capture_into(*function, captures);
    callbacks.declared = [&](const StateSpec& spec, const Site& site) {
      throw Error(Code::failed_precondition,
                  fmt::format("{}: its code creates '{}' at {}; create states outside of it", name,
                              spec.name, site.text()));
    };
    const Tracing tracing(in->graph, nullptr, name, std::move(callbacks), &scope);
    for (const Expr& e : code(in->graph)) {
      const Expr mine = &e.reader() == &in->graph ? e : in->graph.adopt(e, Site());
      function->outputs.push_back(mine.edge());
    }
  }
  in->graph.seal_as(name);
  find_reads(*function, scope);
  return call_staged(function, captures, scope);
}

std::string explain_staged(StagedFunction& function) {
  if (function.in->host) return prepared(function)->explain();
  const std::lock_guard lock(function.in->mutex);
  return program_of(function).graph.text();
}

Exprs call_staged(const std::shared_ptr<StagedFunction>& function, std::span<const Expr> inputs,
                  Eager& scope) {
  // Each tape that records the call may differentiate the gradient of the tape inside it, and needs
  // more of the call's values.
  std::vector<BindObserver*> told;
  std::shared_ptr<StagedFunction> run = function;
  for (BindObserver* o = BindObserver::innermost(); o; o = o->outer())
    if (o->records(*function, inputs, scope)) {
      told.push_back(o);
      run = o->forward_of(run);
    }
  const Tracing::Suspended untraced;
  Exprs out;
  {
    // binds inside are part of the call
    const BindObserver::Paused paused;
    std::vector<Value> values;
    RemoteDevice* const device = run->in->host ? scope.remote() : nullptr;
    if (Kernel* const there = device ? prepared_there(*run, *device) : nullptr) {
      values = scope.run_there(*there, run->name, inputs, run->outputs.size());
    } else if (run->in->host) {
      values.reserve(inputs.size());
      for (const Expr& e : inputs) values.push_back(scope.at_home(e));
      values = prepared(*run)->run(std::move(values));
    } else {
      values = replayed(*run, inputs, scope);
    }
    out.reserve(values.size());
    for (Value& v : values) out.push_back(scope.hold(std::move(v)));
  }
  for (BindObserver* o : told) o->called(function, inputs, out, scope);
  out.resize(function->outputs.size());
  return out;
}

}  // namespace troupe::detail
