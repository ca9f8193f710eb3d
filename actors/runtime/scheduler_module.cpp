#include <troupe/actors/runtime/scheduler_module.hpp>

#include <array>
#include <stdexcept>
#include <utility>

#include <caf/error.hpp>
#include <caf/exit_reason.hpp>
#include <caf/monitorable_actor.hpp>
#include <caf/send.hpp>

#include <troupe/actors/runtime/printer.hpp>

namespace troupe {
namespace {

/// Collects the actors that the end of one actor wakes, so that a chain of linked actors ends in a
/// loop and not in a recursion.
class EndedUnit final : public caf::execution_unit {
 public:
  explicit EndedUnit(caf::actor_system& system) : execution_unit(&system) {}
  void exec_later(caf::resumable* job) override { woken.push_back(job); }
  std::vector<caf::resumable*> woken;
};

/// Adds one to a counter that only the calling thread writes.
void bump(std::atomic<std::uint64_t>& counter) {
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

}  // namespace

void SchedulerModule::load(caf::actor_system_config& config, WorkerPool& pool) {
  config.module_factories.push_back(
      [&pool](caf::actor_system& system) -> caf::actor_system::module* {
        return new SchedulerModule(system, pool);
      });
}

SchedulerModule* SchedulerModule::of(caf::actor_system& system) {
  return dynamic_cast<SchedulerModule*>(&system.scheduler());
}

SchedulerModule::SchedulerModule(caf::actor_system& system, WorkerPool& pool)
    : abstract_coordinator(system), pool_(pool), slot_(pool.attach(this)),
      run_job_(run_job_of(slot_)) {
  for (int i = 0; i < pool.size(); ++i) units_.push_back(std::make_unique<Unit>(system, *this));
}

SchedulerModule::~SchedulerModule() { pool_.detach(slot_); }

void SchedulerModule::init(caf::actor_system_config& config) {
  abstract_coordinator::init(config);
  num_workers_ = static_cast<size_t>(pool_.size());
  if (pool_.deterministic()) max_throughput_ = 1;
}

void SchedulerModule::start() {
  if (!pool_.deterministic())
    clock_thread_ = std::thread([this] {
      system().thread_started();
      real_clock_.run_dispatch_loop();
      system().thread_terminates();
    });
  servers_ = {system().spawn_serv(), system().config_serv()};
  printer_ = lean_spawn<Printer>(system());
  utility_actors_[printer_id] = caf::actor_cast<caf::actor>(printer_.strong());
}

/// Ends the printer first, by an ordinary message behind the text that it has yet to print. Ends
/// the clock last, because ending actors still cancel their timeouts, and its queue is bounded.
void SchedulerModule::stop() {
  caf::anon_send_exit(utility_actors_[printer_id], caf::exit_reason::user_shutdown);
  run_until([this] { return printer_->getf(caf::abstract_actor::is_terminated_flag); });
  stopping_.store(true, std::memory_order_seq_cst);
  run_until([this] { return outstanding() == 0; });
  utility_actors_[printer_id] = nullptr;
  printer_ = {};
  servers_ = {};
  if (!clock_thread_.joinable()) return;
  real_clock_.cancel_dispatch_loop();
  clock_thread_.join();
}

/// Shutdown only, so plain polling will do.
template <class Condition>
void SchedulerModule::run_until(Condition met) {
  while (!met()) {
    if (pool_.deterministic()) pool_.step();
    else std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

caf::actor_clock& SchedulerModule::clock() noexcept {
  if (pool_.deterministic()) return virtual_clock_;
  return real_clock_;
}

std::size_t SchedulerModule::advance_time(std::chrono::nanoseconds by) {
  if (!pool_.deterministic())
    throw std::logic_error("only a deterministic pool's clock can be advanced");
  return virtual_clock_.advance_time(by);
}

// ---- the way in --------------------------------------------------------------------------------

void SchedulerModule::enqueue(caf::resumable* job) {
  auto* worker = Worker::current();
  if (worker != nullptr && &worker->pool() == &pool_) submit_here(*worker, job);
  else submit_from_outside(job);
}

void SchedulerModule::Unit::exec_later(caf::resumable* job) { module_.enqueue(job); }

void SchedulerModule::submit_here(Worker& worker, caf::resumable* job) {
  bump(units_[static_cast<std::size_t>(worker.index())]->submitted);
  worker.submit({run_job_, job});
}

void SchedulerModule::submit_from_outside(caf::resumable* job) {
  from_outside_.fetch_add(1, std::memory_order_seq_cst);
  if (!stopping_.load(std::memory_order_seq_cst)) return pool_.submit({run_job_, job});
  end(job);
  ended_outside_.fetch_add(1, std::memory_order_seq_cst);
}

// ---- the way out -------------------------------------------------------------------------------

template <int Slot>
void SchedulerModule::run_job(void* object, Worker& worker) {
  auto& module = *static_cast<SchedulerModule*>(worker.pool().attached(Slot));
  auto& unit = *module.units_[static_cast<std::size_t>(worker.index())];
  module.run(static_cast<caf::resumable*>(object), unit);
  bump(unit.finished);
}

void SchedulerModule::run_here(caf::resumable* job) {
  auto& unit = *units_[static_cast<std::size_t>(Worker::current()->index())];
  bump(unit.submitted);
  run(job, unit);
  bump(unit.finished);
}

SchedulerModule::RunJob SchedulerModule::run_job_of(int slot) {
  static constexpr auto table = []<std::size_t... Slots>(std::index_sequence<Slots...>) {
    return std::array<RunJob, sizeof...(Slots)>{&run_job<static_cast<int>(Slots)>...};
  }
  (std::make_index_sequence<WorkerPool::kSlots>());
  return table[static_cast<std::size_t>(slot)];
}

void SchedulerModule::run(caf::resumable* job, Unit& unit) {
  if (stopping_.load(std::memory_order_acquire)) return end(job);
  switch (job->resume(&unit, max_throughput_)) {
    case caf::resumable::resume_later: return unit.exec_later(job);
    case caf::resumable::awaiting_message:
    case caf::resumable::done:
    case caf::resumable::shutdown_execution_unit: return job->intrusive_ptr_release_impl();
  }
}

/// Ends the actor behind `job` and the actors that its end wakes. Any other job is only released.
void SchedulerModule::end(caf::resumable* job) {
  EndedUnit unit(system());
  unit.woken.push_back(job);
  while (!unit.woken.empty()) {
    auto* next = unit.woken.back();
    unit.woken.pop_back();
    auto* actor = dynamic_cast<caf::monitorable_actor*>(next);
    if (actor != nullptr && &actor->home_system() != &system()) {
      actor->home_system().scheduler().enqueue(next);  // a neighbour on the same pool lives on
      continue;
    }
    if (actor != nullptr) actor->cleanup(caf::make_error(caf::exit_reason::user_shutdown), &unit);
    next->intrusive_ptr_release_impl();
  }
}

std::uint64_t SchedulerModule::outstanding() const {
  auto finished = ended_outside_.load(std::memory_order_seq_cst);
  for (const auto& unit : units_) finished += unit->finished.load(std::memory_order_seq_cst);
  auto submitted = from_outside_.load(std::memory_order_seq_cst);
  for (const auto& unit : units_) submitted += unit->submitted.load(std::memory_order_seq_cst);
  return submitted - finished;
}

}  // namespace troupe
