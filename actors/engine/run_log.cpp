#include <troupe/actors/engine/run_log.hpp>

#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include <troupe/actors/runtime/clock.hpp>

namespace troupe {

void RunLog::Ring::add(std::size_t most, const EndedRun& end) {
  if (runs.size() < most) runs.push_back(end);
  else runs[count % most] = end;
  ++count;
}

std::vector<EndedRun> RunLog::Ring::latest_first() const {
  std::vector<EndedRun> all;
  for (std::uint64_t i = 0; i < runs.size(); ++i)
    all.push_back(runs[(count - 1 - i) % runs.size()]);
  return all;
}

RunLog::RunLog(const EngineOptions& options) : options_(options) { recent_.runs.reserve(kRecent); }

void RunLog::add(const EndedRun& end, bool has_failed) {
  if (has_failed) errors_->add(end);
  std::lock_guard lock(mutex_);
  recent_.add(kRecent, end);
}

std::vector<EndedRun> RunLog::recent() {
  std::lock_guard lock(mutex_);
  return recent_.latest_first();
}

void RunLog::log_failure(const EndedRun& end, const std::string& node, Time now) {
  if (!options_.log) return;
  std::uint64_t unlogged = 0;
  {
    std::lock_guard lock(mutex_);
    if (now - logged_since_ >= std::chrono::minutes(1))
      logged_since_ = now, unlogged = std::exchange(unlogged_, 0), logged_ = 0;
    if (logged_ == EngineOptions::kFailuresLogged) {
      ++unlogged_;
      return;
    }
    ++logged_;
  }
  if (unlogged > 0)
    options_.log({LogRecord::Level::warning,
                  end.ended_ns,
                  node,
                  {},
                  {},
                  {},
                  fmt::format("{} more runs have failed since and were not logged", unlogged)});
  options_.log({LogRecord::Level::error, end.ended_ns, node,
                fmt::format("{}/{}", end.plan.owner, end.run), end.plan.text(), actor_of(end.error),
                end.error});
}

void RunLog::warn(const std::string& text, const std::string& node) const {
  if (options_.log) options_.log({LogRecord::Level::warning, epoch_ns(), node, {}, {}, {}, text});
  else fmt::print(stderr, "troupe: warning: {}\n", text);
}

// A caller that cancels runs or lets them time out as a matter of course must not cause thousands
// of files. The first runs of a minute suffice to find the cause.
bool RunLog::may_write_flight(Time now) {
  if (options_.flight.empty()) return false;
  std::lock_guard lock(mutex_);
  if (now - flights_since_ >= std::chrono::minutes(1)) flights_since_ = now, flights_ = 0;
  return flights_++ < EngineOptions::kFlights;
}

std::function<void(Inspection&)> RunLog::writer(
    TracedRun run, const EndedRun& end, std::shared_ptr<const CompiledPlan> compiled,
    const std::string& path, std::shared_ptr<std::promise<Status>> written) const {
  return [compiled = std::move(compiled), path, number = std::to_string(end.run),
          run = std::move(run), owner = end.plan.owner, flight = options_.flight, plan = end.plan,
          run_number = end.run, errors = errors_, log = options_.log,
          written = std::move(written)](Inspection& inspection) {
    try {  // runs in a partition's turn, which must not fail because of it
      const bool is_flight = path.empty();
      const std::string file =
          is_flight ? flight_file(flight, run.node, owner, number, EngineOptions::kFlights) : path;
      const Status status = write_trace(file, run, *compiled->troupe.plan, inspection.answers());
      if (written) written->set_value(status);
      if (status.ok() && !is_flight) return;
      if (is_flight) errors->note_flight(plan, run_number, status.ok() ? file : status.message());
      const std::string text =
          status.ok()
              ? fmt::format("the events before the failure of run '{}' are in '{}'", run.run, file)
              : status.message();
      if (!log && !is_flight) fmt::print(stderr, "troupe: run '{}': {}\n", run.run, text);
      if (!log) return;
      log({status.ok() ? LogRecord::Level::info : LogRecord::Level::warning,
           epoch_ns(),
           run.node,
           run.run,
           compiled->troupe.plan->name.text(),
           {},
           text});
    } catch (...) {}
  };
}

}  // namespace troupe
