#include <troupe/actors/engine/engine.hpp>

#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/actors/executor/loop_report.hpp>
#include <troupe/actors/plan/explain.hpp>
#include <troupe/actors/runtime/scheduler_module.hpp>

namespace troupe {

// ---- handles

RunHandle::RunHandle() = default;
RunHandle::RunHandle(EngineImpl& engine, Ref<Run> run) : engine_(&engine), run_(std::move(run)) {}
RunHandle::RunHandle(RunHandle&&) noexcept = default;
RunHandle& RunHandle::operator=(RunHandle&&) noexcept = default;
RunHandle::~RunHandle() = default;

Run& RunHandle::run() const {
  if (!run_)
    throw Error(Code::failed_precondition,
                "the handle holds no run: it is empty, or was moved from");
  return *run_;
}
Status RunHandle::wait() {
  Run& mine = run();  // refused first: without a run there is no engine either
  engine_->wait(mine);
  return mine.status();
}
Status RunHandle::trace() {
  Run& mine = run();
  engine_->wait(mine);
  return engine_->trace_of(mine);
}
bool RunHandle::is_done() const { return run().is_settled(); }
std::vector<Tensor> RunHandle::get() {
  wait().throw_if_error();
  if (std::exchange(is_taken_, true))
    throw Error(Code::failed_precondition,
                "an earlier call of get() took the fetched values; keep its result");
  return run_->take_fetches();
}
void RunHandle::cancel() {
  Run& mine = run();
  engine_->fail(mine, Status(Code::cancelled, "the run was cancelled"));
}

void EngineImpl::wait(Run& run) {
  if (run.is_settled()) return;
  require_may_wait();
  if (!options_.deterministic) run.wait();
  else step_until([&] { return run.is_settled(); });
}

Status EngineImpl::trace_of(const Run& run) {
  if (!run.traced.valid()) return {};
  const auto is_there = [&] {
    return run.traced.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  if (!is_there()) {
    require_may_wait();
    if (options_.deterministic) step_until(is_there);
    else run.traced.wait();
  }
  try {
    return run.traced.get();
  } catch (const std::future_error&) {
    return {Code::unavailable, "the trace is lost: the partitions ended before they returned it"};
  }
}

// A worker that waits for a run holds a place that the run may need; as many of them as there are
// workers hold all. Steps nest.
void EngineImpl::require_may_wait() const {
  if (options_.deterministic || !Worker::current() || &Worker::current()->pool() != pool_.get())
    return;
  throw Error(Code::failed_precondition,
              "an actor that waits for a run of its own engine holds the worker that the run "
              "needs; declare it with ActorOptions::blocks, which gives it a thread of its own");
}

RunHandle Function::start(std::vector<Tensor> feeds, const RunOptions& options) const {
  if (!compiled_)
    throw Error(Code::failed_precondition, "an empty function was called; compile one");
  EngineImpl& engine = compiled_->owner();
  return RunHandle(engine, engine.start(engine.current(compiled_), std::move(feeds), options));
}
std::vector<Tensor> Function::operator()(std::vector<Tensor> feeds,
                                         const RunOptions& options) const {
  if (!compiled_)
    throw Error(Code::failed_precondition, "an empty function was called; compile one");
  EngineImpl& engine = compiled_->owner();
  return RunHandle(engine, engine.run(engine.current(compiled_), std::move(feeds), options)).get();
}
std::string Function::explain() const {
  if (!compiled_)
    throw Error(Code::failed_precondition, "an empty function has nothing to explain; compile one");
  const EngineImpl& engine = compiled_->owner();
  std::string warned;
  for (const std::string& w : compiled_->warnings) warned += "warning: " + w + "\n";
  return warned + troupe::explain(*compiled_->troupe.plan, compiled_->reports, compiled_->costs,
                                  compiled_->measured,
                                  full_name(engine.options().default_device, engine.node()));
}

const std::vector<std::string>& Function::warnings() const {
  if (!compiled_)
    throw Error(Code::failed_precondition, "an empty function has no warnings; compile one");
  return compiled_->warnings;
}

std::vector<LoopReport> Function::loops() const {
  if (!compiled_)
    throw Error(Code::failed_precondition, "an empty function has no loops; compile one");
  std::shared_ptr<CompiledPlan> renewed;
  {
    std::lock_guard lock(compiled_->renewal_mutex);
    renewed = compiled_->renewed;
  }
  return (renewed ? renewed : compiled_)->loops();
}

// ---- the engine

Engine::Engine(EngineOptions options) : impl_(std::make_unique<EngineImpl>(std::move(options))) {}
Engine::~Engine() { impl_->shut_down(); }

Function Engine::compile(const Graph& graph, const std::vector<Expr>& feeds,
                         const std::vector<Expr>& fetches, const CompileOptions& options) {
  return Function(
      impl_->compile(graph, graph.edges_to_feed(feeds), graph.edges_to_fetch(fetches), options));
}

Function Engine::function_of(const Graph& graph, const Feeds& feeds,
                             const std::vector<Expr>& fetches, std::vector<Tensor>& values) {
  std::vector<Expr> keys;
  for (const auto& [key, value] : feeds) {
    keys.push_back(key);
    values.push_back(value);
  }
  return Function(impl_->cached(graph, graph.edges_to_feed(keys), graph.edges_to_fetch(fetches)));
}

RunHandle Engine::start(const Graph& graph, const Feeds& feeds, const std::vector<Expr>& fetches,
                        const RunOptions& options) {
  std::vector<Tensor> values;
  const Function function = function_of(graph, feeds, fetches, values);
  return function.start(std::move(values), options);
}

std::vector<Tensor> Engine::run(const Graph& graph, const Feeds& feeds,
                                const std::vector<Expr>& fetches, const RunOptions& options) {
  std::vector<Tensor> values;
  const Function function = function_of(graph, feeds, fetches, values);
  return function(std::move(values), options);
}

namespace {
const StateSpec& spec_of(const Variable& variable) {
  if (variable.state() < 0)
    throw Error(Code::invalid_argument,
                "the variable was never declared; take what the graph's `variable` returned");
  return variable.reader().state_spec(variable.state());
}
}  // namespace

Tensor Engine::get(const std::string& variable) { return impl_->get(variable); }
Tensor Engine::get(const Variable& variable) { return impl_->get(spec_of(variable)); }
void Engine::set(const std::string& variable, Tensor value) {
  impl_->set(variable, std::move(value));
}
void Engine::set(const Variable& variable, Tensor value) {
  impl_->set(spec_of(variable), std::move(value));
}
void Engine::initialize(const Variable& variable) {
  const StateSpec& spec = spec_of(variable);
  impl_->set(spec, spec.initial.make(spec.name, spec.values[0].dtype, spec.values[0].shape,
                                     impl_->options().seed));
}
std::vector<std::string> Engine::variables() const { return impl_->variables(); }
Device& Engine::device(const std::string& name) { return impl_->device(name); }
std::uint64_t Engine::step() const { return impl_->step_.load(std::memory_order_relaxed); }
EngineSnapshot Engine::snapshot(std::chrono::nanoseconds patience) {
  return impl_->snapshot(patience);
}
void Engine::set_step(std::uint64_t step) { impl_->step_.store(step, std::memory_order_relaxed); }
int Engine::workers() const { return impl_->pool()->size(); }
bool Engine::take_step() { return impl_->options().deterministic && impl_->pool()->step(); }
void Engine::advance_time(std::chrono::nanoseconds by) {
  SchedulerModule::of(impl_->system())->advance_time(by);
}

}  // namespace troupe
