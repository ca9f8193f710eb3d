#include <troupe/ops/eager/staged.hpp>

#include <algorithm>
#include <optional>

#include <troupe/ops/eager/bind_observer.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/tracing.hpp>

namespace troupe::detail {
namespace {

std::shared_ptr<StagedProgram> prepared(StagedFunction& f) {
  const std::lock_guard lock(f.in->mutex);
  if (!f.program) f.program = f.in->host->stage(f.in->graph, f.inputs, f.outputs, f.keep);
  return f.program;
}

// Without a host the program is replayed, node by node, on the calling thread.
std::vector<Value> replayed(StagedFunction& f, std::span<const Expr> inputs, Eager& scope) {
  std::optional<Program> program;
  {
    const std::lock_guard lock(f.in->mutex);
    program = prune(f.in->graph, f.inputs, f.outputs, f.keep);
  }
  return scope.run_values(*program, inputs);
}

}  // namespace

std::string explain_staged(StagedFunction& function) {
  if (function.in->host) return prepared(function)->explain();
  const std::lock_guard lock(function.in->mutex);
  return prune(function.in->graph, function.inputs, function.outputs, function.keep).graph.text();
}

Exprs call_staged(const std::shared_ptr<StagedFunction>& function, std::span<const Expr> inputs,
                  Eager& scope) {
  // Each tape that records the call may differentiate the gradient of the tape inside it, and needs
  // more of the call's values.
  std::vector<BindObserver*> told;
  std::shared_ptr<StagedFunction> run = function;
  for (BindObserver* o = BindObserver::innermost(); o; o = o->outer())
    if (o->records(*function, inputs)) {
      told.push_back(o);
      run = o->forward_of(run);
    }
  const Tracing::Suspended untraced;
  Exprs out;
  {
    // binds inside are part of the call
    const BindObserver::Paused paused;
    std::vector<Value> values;
    if (run->in->host) {
      for (const Expr& e : inputs) values.push_back(e.held());
      values = prepared(*run)->run(std::move(values));
    } else {
      values = replayed(*run, inputs, scope);
    }
    for (Value& v : values) out.push_back(scope.hold(std::move(v)));
  }
  for (BindObserver* o : told) o->called(function, inputs, out);
  out.resize(function->outputs.size());
  return out;
}

}  // namespace troupe::detail
