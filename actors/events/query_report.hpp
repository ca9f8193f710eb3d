// A running query as its engine's node shows it: operators are actors of a plan, with counters.
//
//   RunningQuery run(query, receive, {.engine = &node.engine(), .name = "busy"});
//   // `troupe ps`, `top`, the page and /api/queries show it, on every node
//
// Threads: any. An operator answers between two of its batches; one that does not in time is shown
// as running, with its last report.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <troupe/actors/engine/reporters.hpp>
#include <troupe/actors/events/query.hpp>

namespace troupe::events {

/// An operator's own account. `busy_ns` counts from the first request on.
struct OperatorReport {
  Counters counters;
  std::uint64_t tokens = 0;   ///< tokens taken
  std::uint64_t busy_ns = 0;  ///< in `receive` of the operator
  std::uint64_t waiting = 0;  ///< tokens that came and were not taken
  std::ptrdiff_t full = -1;   ///< consumer that has no room; -1: none
  bool has_failed = false;
  bool has_answered = false;
  std::vector<std::uint64_t> sent;   ///< tokens, by consumer
  std::vector<std::uint64_t> taken;  ///< tokens, by input
};

/// Collects the reports of operators; the request and the operators share it.
class ReportsOfOperators {
 public:
  explicit ReportsOfOperators(std::size_t operators) : all_(operators), missing_(operators) {}
  void add(std::size_t place, OperatorReport report);
  /// Waits until all have answered; returns whether they have.
  void wait();
  bool wait(std::chrono::nanoseconds patience);
  std::vector<OperatorReport> reports() const;

 private:
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable answered_;
  std::vector<OperatorReport> all_;
  std::size_t missing_;
};

class QueryReporter final : public detail::Reporter {
 public:
  /// Returns the reports of all operators; waits no longer than that.
  using Ask = std::function<std::vector<OperatorReport>(std::chrono::nanoseconds)>;
  QueryReporter(const Query& query, std::string name, int window, Ask ask);
  /// Ends requests for good, and waits for one in progress.
  void close();

  const char* topic() const override { return "queries"; }
  std::string text(std::uint64_t number, std::chrono::nanoseconds patience) override;
  detail::PlanDescription plan() override;
  PartitionSnapshot counters(std::chrono::nanoseconds patience) override;
  std::int64_t made_ns() const override { return made_ns_; }

 private:
  std::vector<OperatorReport> ask(std::chrono::nanoseconds patience);

  const Query query_;
  const std::string name_;
  const int window_;
  const std::int64_t made_ns_;
  std::mutex mutex_;  // guards all below; held while operators are asked
  Ask ask_;
  std::vector<OperatorReport> last_;
};

/// Returns `idle`, `ready`, `running`, `waiting` or `failed`.
ActorStatus status_of(const OperatorReport& report);

}  // namespace troupe::events
