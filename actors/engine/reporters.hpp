// Reporters: work beside an engine's plans, such as standing queries, in the answers of its node.
//
//   Reporting shown(engine.impl(), std::make_shared<QueryReporter>(run));   // until it is dropped
//   for (const auto& [number, reporter] : reporters_of(engine.impl())) reporter->text(100ms);
//
// A reporter with actors is shown like a plan, under a number beyond those of plans. Engines need
// no memory for it: the list is the process's, by engine.
//
// Threads: any. A reporter may be asked until `Reporting` is dropped, and by a question that has
// begun before for as long as that lasts.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <troupe/actors/plan/plan_description.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe::detail {

class EngineImpl;

class Reporter {
 public:
  virtual ~Reporter() = default;
  /// Its kind: a node is asked for all texts of a topic.
  virtual const char* topic() const = 0;
  /// Returns the report as JSON; waits no longer than `patience`.
  virtual std::string text(std::uint64_t number, std::chrono::nanoseconds patience) = 0;
  /// Returns its actors and edges; none by default. Devices are short names.
  virtual PlanDescription plan() { return {}; }
  /// Returns the counters of these actors; waits no longer than `patience`.
  virtual PartitionSnapshot counters(std::chrono::nanoseconds) { return {}; }
  /// The begin, in ns of the Unix epoch.
  virtual std::int64_t made_ns() const { return 0; }
};

/// Numbers of reporters; those of plans count from 1.
inline constexpr std::uint64_t kFirstReporter = 1'000'000'001;

/// Keeps a reporter in the list of its engine.
class Reporting {
 public:
  Reporting() = default;
  Reporting(const EngineImpl& engine, std::shared_ptr<Reporter> reporter);
  ~Reporting() { end(); }
  Reporting(Reporting&& other) noexcept : number_(std::exchange(other.number_, 0)) {}
  Reporting& operator=(Reporting&& other) noexcept {
    end();
    number_ = std::exchange(other.number_, 0);
    return *this;
  }
  /// 0: none.
  std::uint64_t number() const { return number_; }

 private:
  void end();
  std::uint64_t number_ = 0;
};

/// Returns the reporters of an engine with their numbers, which are those of the process.
std::vector<std::pair<std::uint64_t, std::shared_ptr<Reporter>>> reporters_of(
    const EngineImpl& engine);

}  // namespace troupe::detail
