// A query whose operators are actors, on a pool of workers.
//
//   RunningQuery run(query, [](std::size_t output, const Batch& batch) { ... });
//   run.feed("trades", batch);            // any thread; waits while the query has no room
//   run.finish();                         // ends the sources, waits for the outputs
//
// A token is a batch whose size follows load: a batch leaves at once if its consumer has credit,
// else messages gather, up to 4,096 a token. Credit is a few tokens an edge. An operator without
// room for its output takes no input, so a slow output slows the sources and memory is bounded.
//
//   feed ─► port ──Deliver──► operator ──Deliver──► operator ──► receive(output, batch)
//             ◄────Grant─────          ◄────Grant─────
//
// Threads: `feed`, `counters` and `set_consistency` from any thread but a worker's, so never from
// `receive`, which would wait for itself. A worker calls `receive`, for an output one at a time.
// Ownership: the run owns its operators; destruction ends them.
// On a deterministic pool `feed` and `finish` take the steps.
//
// With `RunOptions::nodes` operators run on other nodes (placed_partition.hpp).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <troupe/actors/events/query.hpp>

namespace troupe {
class Engine;
namespace detail {
class WorkerPool;
}
}  // namespace troupe

namespace troupe::events {

struct RunOptions {
  int workers = 2;                     ///< in a pool of its own
  detail::WorkerPool* pool = nullptr;  ///< shared with others, and longer alive than the run
  int window = 4;                      ///< tokens in flight an edge, at least 1
  int partitions = 1;                  ///< copies of the operators, by key; see partition.hpp
  /// The query runs on this engine's workers, and its node shows it (query_report.hpp). The engine
  /// outlives the run. `pool` and `workers` do not count then.
  Engine* engine = nullptr;
  std::string name = {};  ///< as it is shown; empty: the name of its first output
  /// Nodes of the engine's cluster that run the operators between ingress and outputs, `partitions`
  /// copies on each. The query is one of `parse_query`. Sources and outputs stay here.
  std::vector<std::string> nodes = {};
};

class RunningQuery {
 public:
  using Receive = std::function<void(std::size_t output, const Batch& batch)>;
  /// Starts it. Throws Error (failed_precondition, invalid_argument) for a query without an output
  /// and for options out of range. With `nodes` it blocks, and throws not_found for a node that is
  /// not there; its error lists those that are.
  RunningQuery(const Query& query, Receive receive, RunOptions options = {});
  ~RunningQuery();
  RunningQuery(const RunningQuery&) = delete;
  RunningQuery& operator=(const RunningQuery&) = delete;

  /// Feeds a batch. Blocks while the source has 4,096 messages waiting. Throws the error of the
  /// query if it has failed, and Error (not_found) for a source that is not there. The error of a
  /// lost node names it.
  void feed(const std::string& source, Batch batch);
  /// Feeds the batch unless `feed` would block; returns whether it did.
  bool try_feed(const std::string& source, Batch& batch);
  /// Ends all sources and waits until all outputs have ended. Throws the error of the query.
  void finish();
  /// Changes the level; see DirectRun. Operators change one after another, each between two of its
  /// batches: all of them can revise, so the output is the same up to each guarantee. Returns
  /// `effective_from`.
  Time set_consistency(const Consistency& level);
  /// Returns the counters of all operators, each between two of its batches, in the order of the
  /// plan.
  std::vector<Counters> counters() const;

 private:
  class Run;
  std::unique_ptr<Run> run_;
};

}  // namespace troupe::events
