#include <troupe/actors/engine/engine_impl.hpp>

#include <algorithm>
#include <filesystem>
#include <future>
#include <optional>
#include <thread>

#include <unistd.h>

#include <fmt/format.h>

#include <troupe/actors/plan/finite_watch.hpp>
#include <troupe/actors/plan/instances.hpp>
#include <troupe/actors/runtime/scheduler_module.hpp>
#include <troupe/actors/runtime/user_actor.hpp>
#include <troupe/ops/format/replaced_file.hpp>

namespace troupe::detail {

EngineImpl::SystemConfig::SystemConfig(WorkerPool& pool) { SchedulerModule::load(*this, pool); }

namespace {

int workers_of(const EngineOptions& options) {
  // threads, which one process can start and some machine has the cores for
  constexpr int kMostWorkers = 4096;
  if (options.workers < 0 || options.workers > kMostWorkers)
    throw Error(Code::invalid_argument,
                fmt::format("EngineOptions::workers must be 1 to {}, or 0 for one a core, not {}",
                            kMostWorkers, options.workers));
  if (options.workers > 0) return options.workers;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::unique_ptr<WorkerPool> make_pool(const EngineOptions& options) {
  return options.deterministic ? std::make_unique<WorkerPool>(Deterministic{options.seed})
                               : std::make_unique<WorkerPool>(workers_of(options));
}

void check_limits(const EngineOptions& o) {
  const auto check = [](bool is_good, const char* option, const char* range, auto value) {
    if (!is_good)
      throw Error(Code::invalid_argument,
                  fmt::format("EngineOptions::{} must be {}, not {}", option, range, value));
  };
  check(o.max_runs >= 1, "max_runs", "at least 1", o.max_runs);
  check(o.call_depth >= 0, "call_depth", "at least 0", o.call_depth);
  check(o.edges.ahead >= 0 && o.edges.ahead <= 1 << 16, "edges.ahead", "0 to 65,536",
        o.edges.ahead);
  const auto check_swap = [&](const SwapOptions& s, const std::string& of) {
    check(s.fill_level >= 0, (of + ".fill_level").c_str(), "at least 0", s.fill_level);
    check(s.keep_level >= 0, (of + ".keep_level").c_str(), "at least 0", s.keep_level);
    check(s.prefetch >= 0, (of + ".prefetch").c_str(), "at least 0", s.prefetch);
  };
  check_swap(o.swap, "swap");
  const SimSpeed& speed = o.sim.speed;
  check(speed.launch_ns >= 0, "sim.speed.launch_ns", "at least 0", speed.launch_ns);
  check(speed.bytes_per_ns > 0, "sim.speed.bytes_per_ns", "above 0", speed.bytes_per_ns);
  check(speed.flops_per_ns > 0, "sim.speed.flops_per_ns", "above 0", speed.flops_per_ns);
  check(speed.copy_bytes_per_ns > 0, "sim.speed.copy_bytes_per_ns", "above 0",
        speed.copy_bytes_per_ns);
}

void check_costs(const CostOptions& costs) {
  const auto check = [](const char* what, double value) {
    if (!(value >= 0))
      throw Error(
          Code::invalid_argument,
          fmt::format("EngineOptions::costs: {} must not be negative, and is {}", what, value));
  };
  const auto check_device = [&](const DeviceCost& d) {
    check("flops_per_ns", d.flops_per_ns), check("bytes_per_ns", d.bytes_per_ns),
        check("op_ns", d.op_ns);
  };
  const auto check_link = [&](const LinkCost& l) {
    check("latency_ns", l.latency_ns), check("bytes_per_ns", l.bytes_per_ns);
  };
  check_device(costs.device);
  for (const auto& [name, cost] : costs.devices) check_device(cost);
  for (const LinkBetween& link : costs.links) check_link(link.cost);
  check_link(costs.between_nodes), check_link(costs.between_devices);
  check("trips", costs.trips), check("extent", static_cast<double>(costs.extent));
}

// CAF keeps a handle on a system in a thread-local of the thread that makes or ends it. The main
// thread's are gone before objects of static lifetime end, and an engine may be one of them.
template <class F>
void on_own_thread(F f) {
  std::exception_ptr thrown;
  std::thread([&] {
    try {
      f();
    } catch (...) { thrown = std::current_exception(); }
  }).join();
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace

EngineImpl::EngineImpl(EngineOptions options)
    : options_(std::move(options)), pool_(make_pool(options_)),
      devices_({pool_.get(), options_.seed, options_.swap, options_.gpu, options_.sim}),
      config_(*pool_), runs_(options_.max_runs, clock_) {
  check_limits(options_);
  check_costs(options_.costs);
  on_own_thread([this] { system_ = std::make_unique<caf::actor_system>(config_); });
  if (options_.default_device.empty()) options_.default_device = kHostDevice;
  states_.print_to(options_.print);
  states_.own().seed_with(options_.seed);
  if (options_.log)  // a run must end although its log throws
    options_.log = [log = std::move(options_.log)](const LogRecord& record) {
      try {
        log(record);
      } catch (...) {}
    };
  device(options_.default_device);
  if (options_.deterministic) clock_.use_virtual_time(*system_);
}

EngineImpl::~EngineImpl() {
  plans_.close();
  clock_.leave_system();
  // Actors that still run until the system has ended use it through `system_`, which `reset` would
  // clear first.
  on_own_thread([this] {
    delete system_.get();
    (void)system_.release();
  });
}

void EngineImpl::shut_down() {
  clock_.stop();  // its callbacks use actors, which must not outlive their system
  for (auto& run : runs_.close()) fail(*run, shutting_down());
  while (options_.deterministic && !runs_.is_empty())
    if (pool_->run_all() == 0 && !step_elsewhere()) std::this_thread::yield();
  runs_.wait_until_empty();
  // A stream reports the end of a run on its own thread, which may hold the last reference to the
  // run, and so to its plan's actors and states.
  devices_.synchronize();
  // Actors must be gone before their system.
  for (const auto& compiled : plans_.close()) runs_.drop_partitions(compiled->troupe);
  for (const auto& states : states_.all()) states->clear();
}

void EngineImpl::join(Peers& peers) { peers_ = &peers; }

// ---- devices

Device* EngineImpl::find(const std::string& name) {
  const std::string_view on = node_of(name);
  if (on.empty() || (peers_ && on == peers_->name())) return &device(std::string(short_name(name)));
  if (!peers_)
    throw Error(Code::not_found,
                fmt::format("there is no device '{}': this engine is no node of a cluster", name));
  return nullptr;
}

Ref<State> EngineImpl::host(const StateSpec& spec) {
  auto at_work = std::make_shared<AtWork>(spec.name);
  {
    std::lock_guard lock(hosted_mutex_);
    std::erase_if(hosted_, [](const auto& weak) { return weak.expired(); });
    hosted_.push_back(at_work);
  }
  return host_actor(*system_, spec, !options_.deterministic, std::move(at_work));
}

// ---- runs

Ref<Run> EngineImpl::start(const std::shared_ptr<CompiledPlan>& compiled, std::vector<Tensor> feeds,
                           const RunOptions& options) {
  check_feeds(*compiled->troupe.plan, feeds);
  return begin(compiled, std::move(feeds), options, admit(options));
}

void EngineImpl::check_feeds(const Plan& plan, const std::vector<Tensor>& feeds) {
  if (feeds.size() != plan.feeds.size())
    throw Error(
        Code::invalid_argument,
        fmt::format("the function takes {} feeds, not {}{}", plan.feeds.size(), feeds.size(),
                    feeds.size() < plan.feeds.size()
                        ? ": there is none for " +
                              plan.program.graph.describe(plan.program.feeds[feeds.size()].node)
                        : ""));
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    const ValueSpec& want = plan.feeds[i];
    if (want.is_list()
            ? !fits(feeds[i], want)
            : !feeds[i].has_value() || feeds[i].is_list() || feeds[i].dtype() != want.dtype ||
                  !want.shape.is_compatible(feeds[i].shape()))
      throw Error(
          Code::invalid_argument,
          fmt::format("feed '{}' ({}) must be {}, not {}", plan.feed_names[i],
                      plan.program.graph.node(plan.program.feeds[i].node).site.text(), want.text(),
                      feeds[i].has_value() ? spec_of_value(feeds[i]).text() : "nothing"));
    if (plan.check_finite)
      require_finite_feed(feeds[i], plan.feed_names[i],
                          plan.program.graph.node(plan.program.feeds[i].node).site.text());
  }
}

namespace {

// Checks without making the file, because a reader that waits for the file expects its content.
void check_writable(const std::string& path) {
  const std::filesystem::path file(replaced_file(path).path),
      folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  std::error_code ignored;
  const bool is_there = std::filesystem::exists(file, ignored),
             is_replaced = !is_there || std::filesystem::is_regular_file(file, ignored);
  const auto may_write = [](const std::filesystem::path& p) {
    return ::access(p.c_str(), W_OK) == 0;
  };
  const char* why = std::filesystem::is_directory(file, ignored)      ? "it is a folder"
                    : !std::filesystem::is_directory(folder, ignored) ? "its folder is not there"
                    : (is_there && !may_write(file)) || (is_replaced && !may_write(folder))
                        ? "this user may not"
                        : nullptr;
  if (why)
    throw Error(Code::invalid_argument,
                fmt::format("RunOptions::trace: '{}' cannot be written: {}", path, why));
}

}  // namespace

RunTable::Slot EngineImpl::admit(const RunOptions& options) {
  if (options.timeout.count() < 0)
    throw Error(Code::invalid_argument,
                fmt::format("RunOptions::timeout must not be negative, but is {} ns; 0 means none",
                            options.timeout.count()));
  if (options.step < -1)
    throw Error(
        Code::invalid_argument,
        fmt::format("RunOptions::step must not be negative, but is {}; -1 counts up by itself",
                    options.step));
  if (!options.trace.empty()) check_writable(options.trace);
  RunTable::Waiting waiting;
  waiting.is_worker = Worker::current() && &Worker::current()->pool() == pool_.get();
  if (options_.deterministic)
    waiting.step = [this] {
      if (!pool_->step()) wait_for_streams();
    };
  return runs_.admit(options.timeout, waiting);
}

Ref<Run> EngineImpl::make_run(const std::shared_ptr<CompiledPlan>& compiled, std::uint64_t step,
                              std::uint64_t seed, std::vector<Tensor> feeds, int leavers) {
  Ref<Run> run(
      new Run(runs_.next_id(), step, seed, compiled->troupe.plan, std::move(feeds), leavers));
  run->compiled = compiled;
  run->troupe = &compiled->troupe;
  run->on_failed = [this](Run& failed) { give_up(failed); };
  run->started = options_.deterministic ? clock_.now() : run->began.time_since_epoch();
  return run;
}

Ref<Run> EngineImpl::begin(const std::shared_ptr<CompiledPlan>& compiled, std::vector<Tensor> feeds,
                           const RunOptions& options, RunTable::Slot slot) {
  std::uint64_t step = options.step >= 0 ? static_cast<std::uint64_t>(options.step)
                                         : step_.fetch_add(1, std::memory_order_relaxed);
  PlanActors& troupe = compiled->troupe;
  Ref<Run> run = make_run(compiled, step, options_.seed, std::move(feeds),
                          troupe.here() + (troupe.remote ? troupe.remote->nodes() : 0));
  // The run keeps its actors; the engine keeps the run until it has drained.
  if (options.trace.empty()) {
    run->on_drained = [this](Run& drained) { forget(drained, true); };
  } else {
    // The promise goes on to the answer of the partitions: if there is none it is broken, which
    // ends `RunHandle::trace` too.
    auto traced = std::make_shared<std::promise<Status>>();
    run->traced = traced->get_future().share();
    run->on_drained = [this, trace = options.trace,
                       traced = std::move(traced)](Run& drained) mutable {
      forget(drained, true, trace, std::move(traced));
    };
  }
  const std::chrono::nanoseconds left = slot.left();
  runs_.keep(run, std::move(slot));
  compiled->started.fetch_add(1, std::memory_order_relaxed);
  // From here on every partition and node must leave the run before it ends, even if it fails.
  try {
    if (!options.trace.empty()) {
      Inspect on{};
      on.trace = Inspect::Trace::on;
      on.tracer = {run->info().id};
      ask(troupe.partitions, on);
    }
    if (troupe.remote) {
      troupe.weigh();
      troupe.remote->start(*run);
      run->is_named.store(true, std::memory_order_seq_cst);
      // A failure before `is_named` was set could not notify the other nodes without the key. The
      // failing thread writes `cancelled` and reads `is_named`; this one writes and reads in the
      // opposite order. So at least one of the two sees the other's write.
      if (run->info().cancelled.load(std::memory_order_seq_cst)) troupe.remote->failed(*run);
    }
    // Only now, because an inspection on other nodes needs the run's key.
    if (left.count() > 0) runs_.remind(*run, left);
  } catch (...) { fail(*run, Status::from_current_exception()); }
  bool is_whole = true;
  for (const auto& partition : troupe.partitions)
    if (partition && !partition->send(StartRun{run})) {
      is_whole = false;
      fail(*run, Status(Code::internal,
                        fmt::format("the partition on {} has ended; compile the function again",
                                    partition->partition().plan().name)));
      run->leave();
    }
  // which may await something of one that has ended
  for (const auto& partition : troupe.partitions)
    if (partition && !is_whole) partition->send(Abandon{run});
  return run;
}

Ref<Run> EngineImpl::begin_part(const std::shared_ptr<CompiledPlan>& compiled, RunKey key,
                                std::uint64_t owners_id, std::uint64_t step, std::uint64_t seed,
                                std::vector<Tensor> feeds, std::function<void(Run&)> on_end) {
  Ref<Run> run = make_run(compiled, step, seed, std::move(feeds), compiled->troupe.here());
  run->key = key, run->owners_id = owners_id;
  run->is_named.store(true, std::memory_order_release);
  compiled->troupe.weigh();
  run->on_drained = [this, on_end = std::move(on_end)](Run& drained) {
    on_end(drained);
    forget(drained, false);
  };
  runs_.keep_part(run);
  compiled->started.fetch_add(1, std::memory_order_relaxed);
  return run;
}

Ref<Run> EngineImpl::run(const std::shared_ptr<CompiledPlan>& compiled, std::vector<Tensor> feeds,
                         const RunOptions& options) {
  check_feeds(*compiled->troupe.plan, feeds);
  require_may_wait();
  RunTable::Slot slot = admit(options);
  std::optional<CallerWorker> caller_worker;
  if (options.timeout.count() == 0) caller_worker.emplace(*pool_);
  Ref<Run> run = begin(compiled, std::move(feeds), options, std::move(slot));
  if (caller_worker && *caller_worker) {
    caller_worker->run_until([&] { return run->is_settled() || runs_.in_flight() > 1; });
    caller_worker.reset();
  }
  try {
    wait(*run);
  } catch (...) {  // no handle is left with which the caller could wait again
    fail(*run, Status::from_current_exception());
    throw;
  }
  return run;
}

void EngineImpl::cancel(std::uint64_t number) {
  std::string under_way;
  for (const Ref<Run>& run : runs_.live()) {
    if (run->owners_id != 0) continue;  // another node's
    if (run->number() == number)
      return fail(*run, Status(Code::cancelled, "an operator has cancelled the run"));
    if (under_way.size() < 100)
      under_way += fmt::format("{}{}/{}", under_way.empty() ? "" : ", ", node(), run->number());
  }
  const std::string name = fmt::format("{}/{}", node(), number);
  for (const EndedRun& e : log_.recent())
    if (e.is_owned && e.run == number)
      throw Error(Code::not_found,
                  fmt::format("run '{}' has ended already{}", name,
                              e.error.empty() ? ", without an error" : ": " + e.error));
  throw Error(Code::not_found, fmt::format("there is no run '{}'; under way {}", name,
                                           under_way.empty() ? "is none" : "are " + under_way));
}

void EngineImpl::step_until(const std::function<bool()>& is_done) {
  while (!is_done())
    if (!pool_->step() && !step_elsewhere()) wait_for_streams();
}

// No step is pending: a stream device, whose thread is its own, may still bring one.
void EngineImpl::wait_for_streams() {
  if (devices_.are_synchronous())
    throw Error(Code::failed_precondition,
                "the run waits for something that no pending step will bring");
  if (!devices_.poll()) std::this_thread::yield();
}

// Cancels the run's waiters in states. A waiter that comes later checks whether its run was
// cancelled (ops/graph/state.cpp). A run over several nodes is abandoned on all of them, because
// their tokens may never come. The message to them is sent before the caller is answered, and so
// before the caller's next run. It has a priority of its own, so the two may be reordered.
void EngineImpl::give_up(Run& run) {
  for (const auto& states : states_.all()) states->cancel_waiters(run.info().id, given_up());
  cancel_exchanges(run.plan(), run.info().id);
  if (!run.troupe->remote) return;
  run.retain();
  Ref<Run> keep(&run);
  for (const auto& partition : runs_.partitions_of(run))
    if (partition) partition->send(Abandon{keep});
  // else `begin` does, once it is
  if (run.is_named.load(std::memory_order_seq_cst)) run.troupe->remote->failed(run);
}

void EngineImpl::forget(Run& run, bool is_owned, const std::string& trace,
                        std::shared_ptr<std::promise<Status>> traced) {
  const std::shared_ptr<CompiledPlan>& compiled = run.compiled;
  const bool has_failed = run.is_poisoned();  // its status may be about to be settled
  const bool is_written = has_failed || !trace.empty();
  EndedRun end{run.number(),
               is_owned,
               compiled->troupe.plan->name,
               is_written ? epoch_ns() : coarse_epoch_ns(),
               (clock_.now() - run.started).count(),
               has_failed ? run.status().message() : std::string(),
               run.fired(),
               has_failed ? run.status().code() : Code::ok,
               1,
               0,
               {}};
  (has_failed ? compiled->failed : compiled->ended).fetch_add(1, std::memory_order_relaxed);
  compiled->durations.add(std::chrono::nanoseconds(end.took_ns));
  endings_.add(has_failed ? run.status().code() : Code::ok);
  log_.add(end, has_failed);  // before its flight, whose path is noted there
  try {
    if (has_failed) log_.log_failure(end, node());
    if (!trace.empty())
      write_events(run, end, compiled, trace, Inspect::Trace::off, std::move(traced));
    if (has_failed && log_.may_write_flight())
      write_events(run, end, compiled, {}, Inspect::Trace::as_it_is, {});
  } catch (...) {  // no memory to report it with; the run has ended all the same
  }
  if (run.troupe->remote) cancel_exchanges(run.plan(), run.info().id);  // values that none took
  runs_.forget(run);
}

}  // namespace troupe::detail
