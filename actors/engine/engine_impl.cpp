#include <troupe/actors/engine/engine_impl.hpp>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <thread>

#include <unistd.h>

#include <fmt/format.h>

#include <troupe/actors/runtime/scheduler_module.hpp>
#include <troupe/actors/runtime/user_actor.hpp>

namespace troupe {

// Ends runs whose deadline has passed in virtual time. CAF's clock sends it their ids, and steps
// are drawn for it as for all actors. In real time it would wait for a worker, which the kernel
// that takes too long may hold: that is what `Deadlines` are for.
class EngineImpl::Timekeeper final : public LeanActor<std::uint64_t> {
 public:
  Timekeeper(caf::actor_config& config, std::function<void(std::uint64_t)> expire)
      : LeanActor(config), expire_(std::move(expire)) {}
  const char* name() const override { return "timekeeper"; }

 protected:
  void receive(std::uint64_t& run_id) override { expire_(run_id); }
  void receive_control(caf::mailbox_element& element) override {
    if (element.content().match_elements<std::uint64_t>())
      expire_(element.content().get_as<std::uint64_t>(0));
    else LeanActor::receive_control(element);
  }

 private:
  std::function<void(std::uint64_t)> expire_;
};

// as a time-out: later ones are no point in time
constexpr std::chrono::nanoseconds kLongestTimeout = std::chrono::hours(24 * 365 * 100);

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

Status shutting_down() { return Status(Code::cancelled, "the engine is shutting down"); }

}  // namespace

EngineImpl::EngineImpl(EngineOptions options)
    : options_(std::move(options)), pool_(make_pool(options_)), config_(*pool_) {
  check_costs(options_.costs);
  if (options_.max_runs < 1)
    throw Error(
        Code::invalid_argument,
        fmt::format("EngineOptions::max_runs must be at least 1, not {}", options_.max_runs));
  on_own_thread([this] { system_ = std::make_unique<caf::actor_system>(config_); });
  if (options_.default_device.empty()) options_.default_device = "cpu:0";
  states_.print_to(options_.print);
  if (options_.log)  // what it throws is its own trouble: who logs has a run to end
    options_.log = [log = std::move(options_.log)](const LogRecord& record) {
      try {
        log(record);
      } catch (...) {}
    };
  recent_.reserve(kRecent);  // then the end of a run allocates nothing
  errors_.reserve(kErrors);
  device(options_.default_device);
  if (options_.deterministic)
    timekeeper_ = lean_spawn<Timekeeper>(*system_, [this](std::uint64_t id) { expire(id); });
}

EngineImpl::~EngineImpl() {
  plans_.clear();
  timekeeper_ = {};
  on_own_thread([this] { system_.reset(); });
}

void EngineImpl::shut_down() {
  deadlines_.stop();  // what it asks about actors outlives no system
  std::vector<Ref<Run>> live;
  {
    std::lock_guard lock(mutex_);
    closing_ = true;  // no run begins after these
    for (auto& [id, run] : live_) live.push_back(run);
    room_.notify_all();
  }
  for (auto& run : live) fail(*run, shutting_down());
  live.clear();
  std::unique_lock lock(mutex_);
  while (options_.deterministic && !live_.empty()) {
    lock.unlock();
    if (pool_->run_all() == 0 && !step_elsewhere()) std::this_thread::yield();
    lock.lock();
  }
  drained_.wait(lock, [&] { return live_.empty(); });
  lock.unlock();
  // A stream tells that a run has ended on its own thread, which may be the last to hold the run,
  // and so its plan's actors and states.
  {
    std::lock_guard devices(devices_mutex_);
    for (const auto& [name, device] : devices_) try {
        device->compute_stream()->synchronize();  // nothing, where there are no streams
      } catch (...) {                             // of work that no run waits for
      }
  }
  lock.lock();
  plans_.clear();
  for (const auto& weak : compiled_)
    if (auto compiled = weak.lock()) {
      compiled->engine = nullptr;
      compiled->troupe.partitions.clear();  // actors must be gone before their system
    }
  lock.unlock();
  for (const auto& states : all_states()) states->clear();
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

Device& EngineImpl::device(const std::string& name) {
  std::lock_guard lock(devices_mutex_);
  auto it = devices_.find(name);
  if (it != devices_.end()) return *it->second;
  std::unique_ptr<Device> device;
  const auto is_numbered = [&](std::string_view kind, std::size_t most_digits) {
    if (!name.starts_with(kind)) return false;
    const std::string_view number = std::string_view(name).substr(kind.size());
    return !number.empty() && number.size() <= most_digits && (number == "0" || number[0] != '0') &&
           std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  if (is_numbered("cpu:", 2)) {
    CpuOptions cpu;
    cpu.pool = pool_.get();
    cpu.name = name;
    device = make_cpu_device(cpu);
  } else if (is_numbered("sim:", 9)) {
    SimOptions sim = options_.sim;
    sim.name = name;
    // nine digits at most
    sim.seed = options_.seed + static_cast<std::uint64_t>(std::atoi(name.c_str() + 4));
    sim.swap = options_.swap;
    device = make_sim_device(sim);
  } else {
    throw Error(Code::not_found, fmt::format("there is no device '{}'; this machine has cpu:0 to "
                                             "cpu:99, which share its cores, and simulated sim:N",
                                             name));
  }
  return *devices_.emplace(name, std::move(device)).first->second;
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

std::chrono::nanoseconds EngineImpl::time() const {
  return options_.deterministic
             ? std::chrono::nanoseconds(system_->scheduler().clock().now().time_since_epoch())
             : std::chrono::steady_clock::now().time_since_epoch();
}

Ref<Run> EngineImpl::start(const std::shared_ptr<Compiled>& compiled, std::vector<Tensor> feeds,
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
    if (!feeds[i].has_value() || feeds[i].dtype() != want.dtype ||
        !want.shape.is_compatible(feeds[i].shape()))
      throw Error(
          Code::invalid_argument,
          fmt::format("feed '{}' ({}) must be {}, not {}", plan.feed_names[i],
                      plan.program.graph.node(plan.program.feeds[i].node).site.text(), want.text(),
                      feeds[i].has_value() ? ValueSpec{feeds[i].dtype(), feeds[i].shape()}.text()
                                           : "nothing"));
  }
}

namespace {

// Nothing is made yet: who waits for the file waits for what is in it.
void check_writable(const std::string& path) {
  const std::filesystem::path file(path),
      folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  std::error_code ignored;
  const bool is_there = std::filesystem::exists(file, ignored);
  const char* why = std::filesystem::is_directory(file, ignored)      ? "it is a folder"
                    : !std::filesystem::is_directory(folder, ignored) ? "its folder is not there"
                    : ::access(is_there ? file.c_str() : folder.c_str(), W_OK) != 0
                        ? "this user may not"
                        : nullptr;
  if (why)
    throw Error(Code::invalid_argument,
                fmt::format("RunOptions::trace: '{}' cannot be written: {}", path, why));
}

}  // namespace

// Waits until another run may be in flight. What runs hold is bounded by how many there are; a
// caller that starts them faster than they end is slowed down, not remembered.
EngineImpl::Place EngineImpl::admit(const RunOptions& options) {
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
  std::unique_lock lock(mutex_);
  const auto has_room = [&] {
    return closing_ ||
           in_flight_.load(std::memory_order_relaxed) < static_cast<std::size_t>(options_.max_runs);
  };
  std::chrono::nanoseconds left = options.timeout;
  if (!has_room()) {
    if (Worker::current() && &Worker::current()->pool() == pool_.get())
      throw Error(Code::resource_exhausted,
                  fmt::format("{} runs are in flight, as many as EngineOptions::max_runs allows, "
                              "and an actor cannot wait for one to end",
                              options_.max_runs));
    const std::chrono::nanoseconds began = time();
    while (options_.deterministic && !has_room()) {
      lock.unlock();
      if (!pool_->step()) wait_for_streams();
      lock.lock();
    }
    if (left.count() == 0) room_.wait(lock, has_room);
    else if (room_.wait_for(lock, std::min(left, kLongestTimeout), has_room))
      left -= time() - began;  // the run gets what is left
    else left = {};
    if (options.timeout.count() > 0 && left.count() <= 0) {
      room_.notify_one();  // if there is room after all, it is another's
      throw Error(
          Code::deadline_exceeded,
          fmt::format("the run's time-out has passed before it could start: {} runs are in flight",
                      options_.max_runs));
    }
  }
  if (closing_) shutting_down().throw_if_error();
  in_flight_.store(in_flight_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return Place(*this, left);
}

void EngineImpl::Place::give_back() {
  EngineImpl* const engine = std::exchange(engine_, nullptr);
  if (!engine) return;
  std::lock_guard lock(engine->mutex_);
  engine->leave_place();
}

void EngineImpl::leave_place() {
  in_flight_.store(in_flight_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  room_.notify_one();
}

Ref<Run> EngineImpl::make_run(const std::shared_ptr<Compiled>& compiled, std::uint64_t step,
                              std::uint64_t seed, std::vector<Tensor> feeds, int leavers) {
  Ref<Run> run(new Run(next_run_.fetch_add(1, std::memory_order_relaxed), step, seed,
                       compiled->troupe.plan, std::move(feeds), leavers));
  run->troupe = &compiled->troupe;
  run->on_failed = [this](Run& failed) { give_up(failed); };
  run->started = options_.deterministic ? time() : run->began.time_since_epoch();
  return run;
}

void EngineImpl::keep(const Ref<Run>& run, Compiled& compiled) {
  if (closing_) shutting_down().throw_if_error();
  live_.emplace(run->info().id, run);
  compiled.started.fetch_add(1, std::memory_order_relaxed);
}

Ref<Run> EngineImpl::begin(const std::shared_ptr<Compiled>& compiled, std::vector<Tensor> feeds,
                           const RunOptions& options, Place place) {
  std::uint64_t step = options.step >= 0 ? static_cast<std::uint64_t>(options.step)
                                         : step_.fetch_add(1, std::memory_order_relaxed);
  PlanTroupe& troupe = compiled->troupe;
  Ref<Run> run = make_run(compiled, step, options_.seed, std::move(feeds),
                          troupe.here() + (troupe.remote ? troupe.remote->nodes() : 0));
  // The run keeps its actors; the engine keeps the run until it has drained.
  run->on_drained = [this, compiled, trace = options.trace](Run& drained) {
    forget(drained, compiled, true, trace);
  };
  {
    std::lock_guard lock(mutex_);
    keep(run, *compiled);
    place.hand_on();
  }
  // From here on the run is ended by all who take part, whatever goes wrong.
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
      // Whoever made it fail before had no name to tell the others by: one of the two sees what the
      // other has written.
      if (run->info().cancelled.load(std::memory_order_seq_cst)) troupe.remote->failed(*run);
    }
    // Only now: who asks the other nodes about the run needs its name there.
    if (place.left().count() > 0) {
      std::lock_guard lock(mutex_);
      if (live_.contains(run->info().id)) remind_in(place.left(), *run);
    }
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

Ref<Run> EngineImpl::begin_part(const std::shared_ptr<Compiled>& compiled, RunKey key,
                                std::uint64_t owners_id, std::uint64_t step, std::uint64_t seed,
                                std::vector<Tensor> feeds, std::function<void(Run&)> on_end) {
  Ref<Run> run = make_run(compiled, step, seed, std::move(feeds), compiled->troupe.here());
  run->key = key, run->owners_id = owners_id;
  run->is_named.store(true, std::memory_order_release);
  compiled->troupe.weigh();
  run->on_drained = [this, compiled, on_end = std::move(on_end)](Run& drained) {
    on_end(drained);
    forget(drained, compiled, false);
  };
  std::lock_guard lock(mutex_);
  keep(run, *compiled);
  in_flight_.store(in_flight_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return run;
}

Ref<Run> EngineImpl::run(const std::shared_ptr<Compiled>& compiled, std::vector<Tensor> feeds,
                         const RunOptions& options) {
  check_feeds(*compiled->troupe.plan, feeds);
  require_may_wait();
  Place place = admit(options);
  std::optional<StandIn> stand_in;
  if (options.timeout.count() == 0) stand_in.emplace(*pool_);
  Ref<Run> run = begin(compiled, std::move(feeds), options, std::move(place));
  if (stand_in && *stand_in) {
    stand_in->run_until(
        [&] { return run->is_settled() || in_flight_.load(std::memory_order_relaxed) > 1; });
    stand_in.reset();
  }
  try {
    wait(*run);
  } catch (...) {  // nobody holds it who could wait again
    fail(*run, Status::from_current_exception());
    throw;
  }
  return run;
}

void EngineImpl::step_until(const std::function<bool()>& is_done) {
  while (!is_done())
    if (!pool_->step() && !step_elsewhere()) wait_for_streams();
}

// No step is pending: a stream device, whose thread is its own, may still bring one.
void EngineImpl::wait_for_streams() {
  std::lock_guard lock(devices_mutex_);
  if (std::all_of(devices_.begin(), devices_.end(),
                  [](const auto& d) { return d.second->is_synchronous(); }))
    throw Error(Code::failed_precondition,
                "the run waits for something that no pending step will bring");
  std::this_thread::yield();
}

// What waits in states for it comes to an end here; what comes later looks whether its run was
// cancelled (ops/graph/state.cpp). A run over several nodes is given up everywhere: what its other
// nodes would still send may never come. They are sent word before its caller is answered, and so
// ahead of what he begins next; it goes by a lane of its own, so that the two may cross on the way.
void EngineImpl::give_up(Run& run) {
  for (const auto& states : all_states()) states->cancel_waiters(run.info().id, given_up());
  if (!run.troupe->remote) return;
  run.retain();
  Ref<Run> keep(&run);
  // the run may end meanwhile, and the engine, which empties them
  const auto partitions = [&] {
    std::lock_guard lock(mutex_);
    return run.troupe->partitions;
  }();
  for (const auto& partition : partitions)
    if (partition) partition->send(Abandon{keep});
  // else `begin` does, once it is
  if (run.is_named.load(std::memory_order_seq_cst)) run.troupe->remote->failed(run);
}

void EngineImpl::remind_in(std::chrono::nanoseconds delay, Run& run) {
  const std::uint64_t id = run.info().id;
  delay = std::min(delay, kLongestTimeout);
  if (!options_.deterministic) {
    run.due = Deadlines::Clock::now() + delay;
    return deadlines_.add(run.due, id);
  }
  auto& clock = system_->scheduler().clock();
  clock.schedule_message(clock.now() + delay,
                         caf::actor_cast<caf::strong_actor_ptr>(timekeeper_.strong()),
                         caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, id));
}

void EngineImpl::forget(Run& run, const std::shared_ptr<Compiled>& compiled, bool is_owned,
                        const std::string& trace) {
  const std::uint64_t id = run.info().id;
  const bool has_failed = run.is_poisoned();  // whoever made it fail may be about to say so
  EndedRun end{run.number(),
               is_owned,
               compiled->troupe.plan->name,
               epoch_ns(),
               (time() - run.started).count(),
               has_failed ? run.status().message() : std::string(),
               run.fired()};
  (has_failed ? compiled->failed : compiled->ended).fetch_add(1, std::memory_order_relaxed);
  try {
    if (has_failed && options_.log) log_failure(end);
    if (!trace.empty()) write_events(run, end, compiled, trace, Inspect::Trace::off);
    if (has_failed && may_write_flight())
      write_events(run, end, compiled, {}, Inspect::Trace::as_it_is);
  } catch (...) {  // no memory to tell of it with: it has ended all the same
  }
  const auto keep = [](std::vector<EndedRun>& ring, std::size_t most, std::uint64_t& count,
                       const EndedRun& e) {
    if (ring.size() < most) ring.push_back(e);
    else ring[count % most] = e;
    ++count;
  };
  Ref<Run> last;  // dropped outside the lock: it may be the last to hold its actors
  std::lock_guard lock(mutex_);
  if (has_failed) keep(errors_, kErrors, failed_, end);
  keep(recent_, kRecent, ended_, end);
  auto it = live_.find(id);
  last = std::move(it->second);
  live_.erase(it);
  expiring_.erase(id);
  if (run.due != Deadlines::Clock::time_point{}) deadlines_.remove(run.due, id);
  leave_place();
  if (live_.empty()) drained_.notify_all();
}

}  // namespace troupe
