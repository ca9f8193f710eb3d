#include <troupe/actors/engine.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <fmt/format.h>

#include <troupe/actors/loop_report.hpp>
#include <troupe/actors/partition_actor.hpp>
#include <troupe/actors/pipeline.hpp>
#include <troupe/actors/scheduler_module.hpp>
#include <troupe/actors/user_actor.hpp>

namespace troupe {
namespace {

// Ends runs whose deadline has passed. CAF's clock, real or virtual, sends it their ids.
class Timekeeper final : public LeanActor<std::uint64_t> {
 public:
  Timekeeper(caf::actor_config& config, std::function<void(std::uint64_t)> expire)
      : LeanActor(config), expire_(std::move(expire)) {}
  const char* name() const override { return "timekeeper"; }

 protected:
  void receive(std::uint64_t& run_id) override { expire_(run_id); }
  void receive_control(caf::mailbox_element& element) override {
    if (element.content().match_elements<std::uint64_t>()) expire_(element.content().get_as<std::uint64_t>(0));
    else LeanActor::receive_control(element);
  }

 private:
  std::function<void(std::uint64_t)> expire_;
};

struct SystemConfig : caf::actor_system_config {
  explicit SystemConfig(WorkerPool& pool) { SchedulerModule::load(*this, pool); }
};

int workers_of(const EngineOptions& options) {
  if (options.workers > 0) return options.workers;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::unique_ptr<WorkerPool> make_pool(const EngineOptions& options) {
  return options.deterministic ? std::make_unique<WorkerPool>(Deterministic{options.seed})
                               : std::make_unique<WorkerPool>(workers_of(options));
}

}  // namespace

// A plan and its actors.
class Compiled {
 public:
  /// The engine, while it lives.
  EngineImpl& owner() const {
    if (!engine) throw Error(Code::failed_precondition, "the engine of this function is gone");
    return *engine;
  }

  EngineImpl* engine = nullptr;
  PlanTroupe troupe;
  std::vector<PassReport> reports;
};

class EngineImpl final : public DeviceFinder, public ActorHost {
 public:
  explicit EngineImpl(EngineOptions options)
      : options_(std::move(options)), pool_(make_pool(options_)), config_(*pool_) {
    if (options_.max_runs < 1) throw Error(Code::invalid_argument, fmt::format("EngineOptions::max_runs must be at least 1, not {}", options_.max_runs));
    on_own_thread([this] { system_ = std::make_unique<caf::actor_system>(config_); });
    if (options_.default_device.empty()) options_.default_device = "cpu:0";
    states_.print_to(options_.print);
    find(options_.default_device);
    timekeeper_ = lean_spawn<Timekeeper>(*system_, [this](std::uint64_t id) { expire(id); });
  }

  ~EngineImpl() {
    plans_.clear();
    timekeeper_ = {};
    on_own_thread([this] { system_.reset(); });
  }

  // CAF keeps a handle on a system in a thread-local of the thread that makes or ends it. The main
  // thread's are gone before objects of static lifetime end, and an engine may be one of them.
  template <class F>
  static void on_own_thread(F f) {
    std::exception_ptr thrown;
    std::thread([&] {
      try {
        f();
      } catch (...) {
        thrown = std::current_exception();
      }
    }).join();
    if (thrown) std::rethrow_exception(thrown);
  }

  // Ends what still runs; after it no partition has work.
  void shut_down() {
    std::vector<Ref<Run>> live;
    {
      std::lock_guard lock(mutex_);
      for (auto& [id, run] : live_) live.push_back(run);
    }
    for (auto& run : live) fail(*run, Status(Code::cancelled, "the engine is shutting down"));
    live.clear();
    std::unique_lock lock(mutex_);
    while (options_.deterministic && !live_.empty()) {
      lock.unlock();
      if (pool_->run_all() == 0) std::this_thread::yield();
      lock.lock();
    }
    drained_.wait(lock, [&] { return live_.empty(); });
    plans_.clear();
    for (const auto& weak : compiled_)
      if (auto compiled = weak.lock()) {
        compiled->engine = nullptr;
        compiled->troupe.partitions.clear();  // actors must be gone before their system
      }
    lock.unlock();
    states_.clear();
  }

  // ---- devices

  Device& find(const std::string& name) override {
    std::lock_guard lock(devices_mutex_);
    auto it = devices_.find(name);
    if (it != devices_.end()) return *it->second;
    std::unique_ptr<Device> device;
    if (name.size() == 5 && name.rfind("cpu:", 0) == 0 && name[4] >= '0' && name[4] <= '9') {
      CpuOptions cpu;
      cpu.pool = pool_.get();
      cpu.name = name;
      device = make_cpu_device(cpu);
    } else if (name.rfind("sim:", 0) == 0) {
      SimOptions sim = options_.sim;
      sim.name = name;
      sim.seed = options_.seed + static_cast<std::uint64_t>(std::atoi(name.c_str() + 4));
      sim.swap = options_.swap;
      device = make_sim_device(sim);
    } else {
      throw Error(Code::not_found, fmt::format("there is no device '{}'; this machine has cpu:0 to cpu:9, which share its cores, and simulated sim:N", name));
    }
    return *devices_.emplace(name, std::move(device)).first->second;
  }

  Ref<State> host(const StateSpec& spec) override { return host_actor(*system_, spec, !options_.deterministic); }

  // ---- compiling

  std::shared_ptr<Compiled> compile(const Graph& graph, const std::vector<Edge>& feeds, const std::vector<Edge>& fetches,
                                    const CompileOptions& options) {
    auto compiled = std::make_shared<Compiled>();
    compiled->engine = this;
    Program program = optimize(graph, feeds, fetches, options.optimize && options_.optimize, options.skip_passes, &compiled->reports);
    Plan plan = make_plan(std::move(program), *this, options_.default_device, states_);
    plan.call_depth = options_.call_depth;
    compiled->troupe.plan = std::make_shared<const Plan>(std::move(plan));
    for (std::size_t i = 0; i < compiled->troupe.plan->partitions.size(); ++i)
      compiled->troupe.partitions.push_back(lean_spawn<PartitionActor>(
          *system_, compiled->troupe.plan, static_cast<std::int32_t>(i), options_.granularity, *pool_, compiled->troupe,
          std::function<void(Run&)>([this](Run& run) { states_.cancel_waiters(run.info().id, aborted()); })));
    std::lock_guard lock(mutex_);
    std::erase_if(compiled_, [](const auto& weak) { return weak.expired(); });
    compiled_.push_back(compiled);
    return compiled;
  }

  // Plans of recent graphs, the least recently used dropped first.
  std::shared_ptr<Compiled> cached(const Graph& graph, const std::vector<Edge>& feeds, const std::vector<Edge>& fetches) {
    CacheKey key{graph.id(), graph.version(), feeds, fetches};
    {
      std::lock_guard lock(mutex_);
      for (auto it = plans_.begin(); it != plans_.end(); ++it)
        if (it->first == key) {
          plans_.splice(plans_.begin(), plans_, it);
          return it->second;
        }
    }
    auto compiled = compile(graph, feeds, fetches, {});
    std::lock_guard lock(mutex_);
    plans_.emplace_front(std::move(key), compiled);
    if (plans_.size() > kMaxPlans) plans_.pop_back();
    return compiled;
  }

  // ---- runs

  Ref<Run> start(const std::shared_ptr<Compiled>& compiled, std::vector<Tensor> feeds, const RunOptions& options) {
    check_feeds(*compiled->troupe.plan, feeds);
    admit(options);
    return begin(compiled, std::move(feeds), options);
  }

  static void check_feeds(const Plan& plan, const std::vector<Tensor>& feeds) {
    if (feeds.size() != plan.feeds.size())
      throw Error(Code::invalid_argument, fmt::format("the function takes {} feeds, not {}", plan.feeds.size(), feeds.size()));
    for (std::size_t i = 0; i < feeds.size(); ++i) {
      const ValueSpec& want = plan.feeds[i];
      if (!feeds[i].has_value() || feeds[i].dtype() != want.dtype || !want.shape.is_compatible(feeds[i].shape()))
        throw Error(Code::invalid_argument,
                    fmt::format("feed '{}' must be {}, not {}", plan.feed_names[i], want.text(),
                                feeds[i].has_value() ? ValueSpec{feeds[i].dtype(), feeds[i].shape()}.text() : "nothing"));
    }
  }

  // Waits until another run may be in flight. What runs hold is bounded by how many there are; a caller
  // that starts them faster than they end is slowed down, not remembered.
  void admit(const RunOptions& options) {
    std::unique_lock lock(mutex_);
    const auto has_room = [&] { return in_flight_.load(std::memory_order_relaxed) < static_cast<std::size_t>(options_.max_runs); };
    if (!has_room() && Worker::current() && &Worker::current()->pool() == pool_.get())
      throw Error(Code::resource_exhausted,
                  fmt::format("{} runs are in flight, as many as EngineOptions::max_runs allows, and an actor cannot wait for one to end", options_.max_runs));
    while (options_.deterministic && !has_room()) {
      lock.unlock();
      if (!pool_->step()) wait_for_streams();
      lock.lock();
    }
    if (options.timeout.count() == 0) room_.wait(lock, has_room);
    else if (!room_.wait_for(lock, options.timeout, has_room))
      throw Error(Code::deadline_exceeded, fmt::format("the run's time-out has passed before it could start: {} runs are in flight", options_.max_runs));
    in_flight_.store(in_flight_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  Ref<Run> begin(const std::shared_ptr<Compiled>& compiled, std::vector<Tensor> feeds, const RunOptions& options) {
    std::uint64_t step = options.step >= 0 ? static_cast<std::uint64_t>(options.step) : step_.fetch_add(1, std::memory_order_relaxed);
    std::uint64_t id = next_run_.fetch_add(1, std::memory_order_relaxed);
    Ref<Run> run(new Run(id, step, options_.seed, compiled->troupe.plan, std::move(feeds)));
    // The run keeps its actors; the engine keeps the run until it has drained.
    run->on_drained = [this, compiled](Run& drained) { forget(drained.info().id); };
    {
      std::lock_guard lock(mutex_);
      live_.emplace(id, run);
    }
    if (options.timeout.count() > 0) {
      auto& clock = system_->scheduler().clock();
      clock.schedule_message(clock.now() + options.timeout, caf::actor_cast<caf::strong_actor_ptr>(timekeeper_.strong()),
                             caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, id));
    }
    for (const auto& partition : compiled->troupe.partitions) partition->send(StartRun{run});
    return run;
  }

  // Starts a run and waits for it. A caller that finds a worker idle and nothing else under way works
  // on the run itself in that worker's place: with no thread to wake, nor to be woken by, a small run
  // takes half its time. Not where the run may have to be answered for before it ends.
  Ref<Run> run(const std::shared_ptr<Compiled>& compiled, std::vector<Tensor> feeds, const RunOptions& options) {
    check_feeds(*compiled->troupe.plan, feeds);
    admit(options);
    std::optional<StandIn> stand_in;
    if (options.timeout.count() == 0) stand_in.emplace(*pool_);
    Ref<Run> run = begin(compiled, std::move(feeds), options);
    if (stand_in && *stand_in) {
      stand_in->run_until([&] { return run->is_settled() || in_flight_.load(std::memory_order_relaxed) > 1; });
      stand_in.reset();
    }
    wait(*run);
    return run;
  }

  void wait(Run& run) {
    if (!options_.deterministic) {
      run.wait();
      return;
    }
    while (!run.is_settled())
      if (!pool_->step()) wait_for_streams();
  }

  // No step is pending: a stream device, whose thread is its own, may still bring one.
  void wait_for_streams() {
    std::lock_guard lock(devices_mutex_);
    if (std::all_of(devices_.begin(), devices_.end(), [](const auto& d) { return d.second->is_synchronous(); }))
      throw Error(Code::failed_precondition, "the run waits for something that no pending step will bring");
    std::this_thread::yield();
  }

  void fail(Run& run, Status status) {
    if (run.fail(std::move(status))) states_.cancel_waiters(run.info().id, aborted());
  }

  void expire(std::uint64_t id) {
    Ref<Run> run;
    {
      std::lock_guard lock(mutex_);
      auto it = live_.find(id);
      if (it == live_.end()) return;
      run = it->second;
    }
    fail(*run, Status(Code::deadline_exceeded, "the run's time-out has passed"));
  }

  static Status aborted() { return Status(Code::aborted, "the run has failed or was cancelled"); }

  EngineOptions options_;
  StateStore states_{this};
  std::unique_ptr<WorkerPool> pool_;
  std::mutex devices_mutex_;  // guards devices_
  std::map<std::string, std::unique_ptr<Device>> devices_;
  SystemConfig config_;
  std::unique_ptr<caf::actor_system> system_;
  std::atomic<std::uint64_t> step_{0};      // publishes nothing but itself
  std::atomic<std::uint64_t> next_run_{1};  // same

 private:
  static constexpr std::size_t kMaxPlans = 64;
  struct CacheKey {
    std::uint64_t graph;
    std::uint64_t version;
    std::vector<Edge> feeds, fetches;
    friend bool operator==(const CacheKey&, const CacheKey&) = default;
  };

  void forget(std::uint64_t id) {
    Ref<Run> last;  // dropped outside the lock: it may be the last to hold its actors
    std::lock_guard lock(mutex_);
    auto it = live_.find(id);
    last = std::move(it->second);
    live_.erase(it);
    in_flight_.store(in_flight_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
    room_.notify_one();
    if (live_.empty()) drained_.notify_all();
  }

  std::mutex mutex_;  // guards live_, plans_ and compiled_
  std::condition_variable drained_;
  std::unordered_map<std::uint64_t, Ref<Run>> live_;
  std::atomic<std::size_t> in_flight_{0};  // admitted; written under mutex_, read by callers that work
  std::condition_variable room_;           // for another run
  std::list<std::pair<CacheKey, std::shared_ptr<Compiled>>> plans_;  // most recently used first
  std::vector<std::weak_ptr<Compiled>> compiled_;  // all that users hold
  LeanRef<Timekeeper> timekeeper_;
};

// ---- handles

RunHandle::RunHandle() = default;
RunHandle::RunHandle(EngineImpl& engine, Ref<Run> run) : engine_(&engine), run_(std::move(run)) {}
RunHandle::RunHandle(RunHandle&&) noexcept = default;
RunHandle& RunHandle::operator=(RunHandle&&) noexcept = default;
RunHandle::~RunHandle() = default;

Status RunHandle::wait() {
  engine_->wait(*run_);
  return run_->status();
}
bool RunHandle::is_done() const { return run_->is_settled(); }
std::vector<Tensor> RunHandle::get() {
  wait().throw_if_error();
  return run_->take_fetches();
}
void RunHandle::cancel() {
  engine_->fail(*run_, Status(Code::cancelled, "the run was cancelled"));
}

RunHandle Function::start(std::vector<Tensor> feeds, const RunOptions& options) const {
  if (!compiled_) throw Error(Code::failed_precondition, "an empty function was called; compile one");
  EngineImpl& engine = compiled_->owner();
  return RunHandle(engine, engine.start(compiled_, std::move(feeds), options));
}
std::vector<Tensor> Function::operator()(std::vector<Tensor> feeds, const RunOptions& options) const {
  if (!compiled_) throw Error(Code::failed_precondition, "an empty function was called; compile one");
  EngineImpl& engine = compiled_->owner();
  return RunHandle(engine, engine.run(compiled_, std::move(feeds), options)).get();
}
std::string Function::explain() const {
  std::string out;
  for (const PassReport& r : compiled_->reports)
    out += fmt::format("{:<16} {:>7} -> {:>7} nodes {:>9.3f} ms\n", r.name, r.nodes_before, r.nodes_after, r.seconds * 1e3);
  const Plan& plan = *compiled_->troupe.plan;
  for (std::size_t i = 0; i < plan.partitions.size(); ++i)
    out += fmt::format("partition {} on {}: {} nodes, {} cut edges out\n", i, plan.partitions[i].device->name(),
                       plan.partitions[i].nodes, plan.partitions[i].sends.size());
  return out + plan.program.graph.text();
}

std::vector<LoopReport> Function::loops() const {
  std::vector<const Partition*> partitions;
  for (const auto& actor : compiled_->troupe.partitions) partitions.push_back(&actor->partition());
  return report_loops(*compiled_->troupe.plan, partitions);
}

// ---- the engine

namespace {

std::vector<Edge> edges_of(const Graph& graph, const std::vector<Expr>& exprs, const char* what) {
  std::vector<Edge> edges;
  for (const Expr& e : exprs) {
    if (e.is_empty() || &e.reader() != &graph) {
      const auto* inside = e.is_empty() ? nullptr : dynamic_cast<const Graph*>(&e.reader());
      if (inside && inside->outer())
        throw Error(Code::invalid_argument, fmt::format("{} {}, {}, is inside {}; only its results are known outside", what, edges.size(),
                                                        inside->describe(e.edge().node), inside->what()));
      throw Error(Code::invalid_argument, fmt::format("{} {} is no expression of this graph", what, edges.size()));
    }
    edges.push_back(e.edge());
  }
  return edges;
}

}  // namespace

Engine::Engine(EngineOptions options) : impl_(std::make_unique<EngineImpl>(std::move(options))) {}
Engine::~Engine() { impl_->shut_down(); }

Function Engine::compile(const Graph& graph, const std::vector<Expr>& feeds, const std::vector<Expr>& fetches,
                         const CompileOptions& options) {
  return Function(impl_->compile(graph, edges_of(graph, feeds, "feed"), edges_of(graph, fetches, "fetch"), options));
}

Function Engine::function_of(const Graph& graph, const Feeds& feeds, const std::vector<Expr>& fetches, std::vector<Tensor>& values) {
  std::vector<Expr> keys;
  for (const auto& [key, value] : feeds) {
    keys.push_back(key);
    values.push_back(value);
  }
  return Function(impl_->cached(graph, edges_of(graph, keys, "feed"), edges_of(graph, fetches, "fetch")));
}

RunHandle Engine::start(const Graph& graph, const Feeds& feeds, const std::vector<Expr>& fetches, const RunOptions& options) {
  std::vector<Tensor> values;
  const Function function = function_of(graph, feeds, fetches, values);
  return function.start(std::move(values), options);
}

std::vector<Tensor> Engine::run(const Graph& graph, const Feeds& feeds, const std::vector<Expr>& fetches, const RunOptions& options) {
  std::vector<Tensor> values;
  const Function function = function_of(graph, feeds, fetches, values);
  return function(std::move(values), options);
}

namespace {

VariableState& variable_of(StateStore& states, const std::string& name, Ref<State>& keep) {
  keep = states.find(name);
  auto* v = dynamic_cast<VariableState*>(keep.get());
  if (!v) throw Error(Code::not_found, fmt::format("the engine has no variable '{}'", name));
  return *v;
}

}  // namespace

Tensor Engine::get(const std::string& variable) {
  Ref<State> keep;
  Tensor value = variable_of(impl_->states_, variable, keep).snapshot();
  if (value.is_on_host()) return value;
  Device& device = *value.device();
  Tensor host = Tensor::empty(value.dtype(), value.shape().is_scalar() ? Shape{1} : value.shape());
  auto stream = device.compute_stream();
  device.copy_to_host(*stream, value, View(host));
  stream->synchronize();
  return host.reshaped(value.shape());
}
Tensor Engine::get(const Variable& variable) {
  impl_->states_.get(variable.reader().state_spec(variable.state()));
  return get(variable.name());
}
void Engine::set(const std::string& variable, Tensor value) {
  Ref<State> keep;
  variable_of(impl_->states_, variable, keep).replace(std::move(value));
}
void Engine::set(const Variable& variable, Tensor value) {
  impl_->states_.get(variable.reader().state_spec(variable.state()));
  set(variable.name(), std::move(value));
}
std::vector<std::string> Engine::variables() const { return impl_->states_.names(StateSpec::Kind::variable); }
Device& Engine::device(const std::string& name) { return impl_->find(name); }
std::uint64_t Engine::step() const { return impl_->step_.load(std::memory_order_relaxed); }
void Engine::set_step(std::uint64_t step) { impl_->step_.store(step, std::memory_order_relaxed); }
int Engine::workers() const { return impl_->pool_->size(); }
bool Engine::take_step() { return impl_->pool_->step(); }
void Engine::advance_time(std::chrono::nanoseconds by) { SchedulerModule::of(*impl_->system_)->advance_time(by); }

}  // namespace troupe
