// Runs a query on the calling thread, message by message: the reference for RunningQuery, and the
// way to query a file.
//
//   DirectRun run(query, [&](std::size_t output, const Batch& batch) { ... });
//   run.feed("trades", batch);   run.finish();
//
// Threads: one at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <troupe/actors/events/query.hpp>
#include <troupe/actors/events/source_progress.hpp>

namespace troupe::events {

class DirectRun {
 public:
  using Receive = std::function<void(std::size_t output, const Batch& batch)>;
  /// Throws Error (failed_precondition) for a query without an output.
  DirectRun(const Query& query, Receive receive);

  /// Feeds a batch and runs all that follows from it. Throws Error that names the operator for a
  /// batch of another schema.
  void feed(const std::string& source, Batch batch) {
    feed(query_.source_index(source), std::move(batch));
  }
  void feed(std::size_t source, Batch batch);
  /// Ends all sources: nothing comes any more.
  void finish();
  /// Changes the level. At a common sync point strong and middle hold equal state, so the output
  /// goes on as if it had been at the new level all along. A level above weak holds from the time
  /// of the switch, and the longest window, on. Returns `effective_from`: from this time on the
  /// output is as at the new level; kNever: at once.
  Time set_consistency(const Consistency& level);
  /// Returns the counters of all operators, in the order of the plan.
  std::vector<Counters> counters() const;

 private:
  void deliver(std::size_t step, std::size_t input, Batch batch);

  const Query query_;
  const std::vector<std::vector<Query::Consumer>> consumers_;
  const Receive receive_;
  std::vector<int> output_of_;  // by step; -1: none
  std::vector<std::unique_ptr<Operator>> operators_;
  SourceProgress progress_;
};

/// Throws Error (failed_precondition) unless the query has a source and an output.
void check_query(const Query& query);
/// Returns the position of the output that each step makes; -1: none.
std::vector<int> outputs_by_step(const Query& query);
/// Returns new operators, at the level of the query.
std::vector<std::unique_ptr<Operator>> make_operators(const Query& query);
/// Returns the time from which a query is at a new level, of the answers of its operators.
Time effective_from(const std::vector<Time>& answers, const std::vector<Time>& reaches);
/// Returns the counters as a table with a line an operator, and the complaints behind it.
std::string text_of(const std::vector<Counters>& counters);

}  // namespace troupe::events
