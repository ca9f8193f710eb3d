// RunLog: keeps the last runs that have ended and the last failures, logs them, and writes their
// files.
//
//   RunLog log(options);
//   log.add(ended, has_failed);
//   if (has_failed) log.log_failure(ended, node);
//
// Threads: any. Ownership: refers to the engine's options, which outlive it.
// Invariants: 1. adding to the log allocates nothing but the strings; 2. of runs that fail
// within a minute at most `kFailuresLogged` are logged and `kFlights` written.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <troupe/actors/engine/compiled_plan.hpp>
#include <troupe/actors/engine/engine.hpp>
#include <troupe/actors/engine/kept_failures.hpp>
#include <troupe/actors/executor/trace_file.hpp>
#include <troupe/actors/observe/inspection.hpp>

namespace troupe {

class RunLog {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::size_t kRecent = 32, kErrors = KeptFailures::kMost;

  explicit RunLog(const EngineOptions& options);

  void add(const EndedRun& end, bool has_failed);
  /// Returns the last runs, the latest first.
  std::vector<EndedRun> recent();
  /// Keeps a run that has failed elsewhere after this node had done its part.
  void add_failed_elsewhere(EndedRun end) { errors_->add(std::move(end)); }
  /// Returns the runs of the last hour that failed, the latest first.
  std::vector<EndedRun> errors() const { return errors_->latest_first(); }

  /// Logs a failure on `node`, or counts it if there were too many within a minute.
  void log_failure(const EndedRun& end, const std::string& node,
                   Time now = std::chrono::steady_clock::now());
  /// Logs a warning about a program that `node` compiles, or prints it to standard error if there
  /// is no log.
  void warn(const std::string& text, const std::string& node) const;
  /// Returns true if the flight of a run that failed may be written, and counts it.
  bool may_write_flight(Time now = std::chrono::steady_clock::now());
  /// Returns a function that writes the answers of a run's partitions to `path`, or, if that is
  /// empty, to a file among the flights. It keeps the actors, does not need the log any more, and
  /// never throws. `written`, if not null, receives the outcome. The loss of a trace is reported on
  /// standard error if there is no log.
  std::function<void(Inspection&)> writer(TracedRun run, const EndedRun& end,
                                          std::shared_ptr<const CompiledPlan> compiled,
                                          const std::string& path,
                                          std::shared_ptr<std::promise<Status>> written = {}) const;

 private:
  struct Ring {
    std::vector<EndedRun> runs;
    std::uint64_t count = 0;  // runs that were ever added
    void add(std::size_t most, const EndedRun& end);
    std::vector<EndedRun> latest_first() const;
  };

  const EngineOptions& options_;
  const std::shared_ptr<KeptFailures> errors_ = std::make_shared<KeptFailures>();
  std::mutex mutex_;  // guards everything below
  Ring recent_;
  Time flights_since_, logged_since_;                      // begin of the minute
  std::uint64_t flights_ = 0, logged_ = 0, unlogged_ = 0;  // since then
};

}  // namespace troupe
