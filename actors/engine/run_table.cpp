#include <troupe/actors/engine/run_table.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/actors/executor/remote_plan.hpp>

namespace troupe {

Status shutting_down() { return Status(Code::cancelled, "the engine is shutting down"); }

namespace {

// The time that an expired run waits for answers about its waits. The longer one applies if all
// other nodes have answered before the timeout.
constexpr auto kPatience = std::chrono::milliseconds(30);
constexpr auto kPatienceWithNodes = std::chrono::milliseconds(500);

}  // namespace

// ---- admission

RunTable::Slot::~Slot() {
  if (!table_) return;
  std::lock_guard lock(table_->mutex_);
  table_->leave_locked();
}

// Runs hold memory in proportion to their number; a caller that starts them faster than they end is
// slowed down.
RunTable::Slot RunTable::admit(std::chrono::nanoseconds timeout, const Waiting& waiting) {
  std::unique_lock lock(mutex_);
  const auto has_room = [&] { return is_closed_ || in_flight() < max_runs_; };
  std::chrono::nanoseconds left = timeout;
  if (!has_room()) {
    if (waiting.is_worker)
      throw Error(Code::resource_exhausted,
                  fmt::format("{} runs are in flight, as many as EngineOptions::max_runs allows, "
                              "and an actor cannot wait for one to end",
                              max_runs_));
    const std::chrono::nanoseconds began = clock_.now();
    while (waiting.step && !has_room()) {
      lock.unlock();
      waiting.step();
      lock.lock();
    }
    if (left.count() == 0) room_.wait(lock, has_room);
    else if (room_.wait_for(lock, std::min(left, EngineClock::kLongest), has_room))
      left -= clock_.now() - began;  // the run gets the remaining time
    else left = {};
    if (timeout.count() > 0 && left.count() <= 0) {
      room_.notify_one();  // if there is room after all, another caller takes it
      throw Error(
          Code::deadline_exceeded,
          fmt::format("the run's time-out has passed before it could start: {} runs are in flight",
                      max_runs_));
    }
  }
  if (is_closed_) shutting_down().throw_if_error();
  add_in_flight(1);
  return Slot(*this, left);
}

void RunTable::leave_locked() {
  add_in_flight(-1);
  room_.notify_one();
}

// ---- the life of a run

void RunTable::keep_locked(const Ref<Run>& run) {
  if (is_closed_) shutting_down().throw_if_error();
  if (!spare_) {
    live_.emplace(run->info().id, run);
    return;
  }
  spare_.key() = run->info().id;
  spare_.mapped() = run;
  live_.insert(std::move(spare_));
}

void RunTable::keep(const Ref<Run>& run, Slot slot) {
  std::lock_guard lock(mutex_);
  keep_locked(run);
  slot.table_ = nullptr;  // `forget` gives it back
}

void RunTable::keep_part(const Ref<Run>& run) {
  std::lock_guard lock(mutex_);
  keep_locked(run);
  add_in_flight(1);
}

void RunTable::forget(Run& run) {
  const std::uint64_t id = run.info().id;
  Ref<Run> last;  // destroyed outside the lock
  std::lock_guard lock(mutex_);
  spare_ = live_.extract(id);
  last = std::move(spare_.mapped());
  if (!questions_.empty()) questions_.erase(id);
  clock_.forget(run.due, id);
  leave_locked();
  if (live_.empty()) drained_.notify_all();
}

std::vector<Ref<Run>> RunTable::live() {
  std::vector<Ref<Run>> runs;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, run] : live_) runs.push_back(run);
  }
  std::sort(runs.begin(), runs.end(),
            [](const Ref<Run>& a, const Ref<Run>& b) { return a->info().id < b->info().id; });
  return runs;
}

// ---- the end of the engine

std::vector<Ref<Run>> RunTable::close() {
  {
    std::lock_guard lock(mutex_);
    is_closed_ = true;
    room_.notify_all();
  }
  return live();
}

bool RunTable::is_empty() {
  std::lock_guard lock(mutex_);
  return live_.empty();
}

void RunTable::wait_until_empty() {
  std::unique_lock lock(mutex_);
  drained_.wait(lock, [&] { return live_.empty(); });
}

RunTable::Partitions RunTable::partitions_of(const Run& run) {
  std::lock_guard lock(mutex_);
  return run.troupe->partitions;
}

void RunTable::drop_partitions(PlanActors& troupe) {
  Partitions dropped;  // destroyed outside the lock
  std::lock_guard lock(mutex_);
  dropped.swap(troupe.partitions);
}

// ---- runs whose timeout has passed

void RunTable::remind(Run& run, std::chrono::nanoseconds left) {
  std::lock_guard lock(mutex_);
  if (!live_.contains(run.info().id)) return;
  left = std::min(left, EngineClock::kLongest);
  std::chrono::nanoseconds delay = left;
  if (run.troupe->remote && run.troupe->remote->nodes() > 0) {
    questions_[run.info().id].deadline = clock_.now() + left;
    delay = left - std::min<std::chrono::nanoseconds>(left / 2, kPatienceWithNodes);
  }
  run.due = clock_.remind(run.info().id, delay);
}

std::optional<RunTable::Expired> RunTable::expire(std::uint64_t id,
                                                  std::function<void()> answered) {
  std::lock_guard lock(mutex_);
  const auto it = live_.find(id);
  if (it == live_.end() || it->second->is_settled()) return std::nullopt;
  Run& run = *it->second;
  // The engine may end meanwhile and drop its references, so the caller gets its own.
  Partitions partitions = run.troupe->partitions;
  Question& question = questions_[id];
  // A stopped node would delay the caller's error by kPatienceWithNodes. So nodes are asked before
  // the timeout whether they answer.
  if (!question.here && !question.was_early && clock_.now() < question.deadline) {
    question.was_early = true;
    run.due = clock_.remind(id, question.deadline - clock_.now());
    return Expired{it->second, {}, {}, {}, 0, false, true};
  }
  bool is_new = !question.here;
  if (is_new) {
    const auto here =
        std::count_if(partitions.begin(), partitions.end(), [](const auto& p) { return bool(p); });
    question.here =
        std::make_shared<Inspection>(static_cast<std::size_t>(here), std::move(answered));
    if (run.troupe->remote) question.nodes = static_cast<std::size_t>(run.troupe->remote->nodes());
  }
  if (is_new && !question.is_answered())
    run.due = clock_.remind(id, question.nodes > 0 && question.heard >= question.nodes
                                    ? kPatienceWithNodes
                                    : kPatience);
  else is_new = false;
  return Expired{
      it->second, std::move(partitions), question.here, question.elsewhere, question.nodes, is_new,
      false};
}

void RunTable::add_early_answer(std::uint64_t id) {
  std::lock_guard lock(mutex_);
  if (const auto it = questions_.find(id); it != questions_.end()) ++it->second.heard;
}

bool RunTable::add_answer(std::uint64_t id, const RunSnapshot& part) {
  std::lock_guard lock(mutex_);
  const auto it = questions_.find(id);
  if (it == questions_.end()) return false;
  it->second.elsewhere.push_back(part);
  return true;
}

bool RunTable::is_answered(std::uint64_t id) {
  std::lock_guard lock(mutex_);
  const auto it = questions_.find(id);
  return it != questions_.end() && it->second.is_answered();
}

}  // namespace troupe
