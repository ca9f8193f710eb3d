// ResidentTracer: observes the values that decide whether a resident loop goes on, for a while
// after a snapshot, as PredicateTracer does for loops whose nodes fire.
//
//   execution.observe(tracer, 500);          // the next iterations
//   tracer->describe(open_loop);             // the next snapshot
//
// The loop is lowered by itself, for `LoopConditionAnalysis`. The tracer observes comparisons of
// the condition whose operands are registers, and the values with which iterations begin.
//
// Threads: one that advances the execution, and the partition's turn.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include <troupe/actors/observe/loop_condition.hpp>
#include <troupe/actors/observe/recurrence.hpp>
#include <troupe/actors/observe/snapshot.hpp>
#include <troupe/controlflow/resident/resident_run.hpp>

namespace troupe {

class ResidentTracer final : public ResidentObserver {
 public:
  /// `loop`: a ResidentLoop node.
  ResidentTracer(const Graph& graph, const Node& loop, const ResidentProgram& program);

  void see(const ResidentRun& execution) override;
  /// Another question: as much may be read again.
  void start();
  void describe(detail::OpenLoop& loop) const;

 private:
  struct Watch {
    std::int32_t comparison;
    std::shared_ptr<const ScalarProgram> left, right;
    std::vector<ResidentPlace> operands;
  };
  void find_watches(const ResidentProgram& program, const Graph& lowered);

  bool is_endless_ = false;
  Followed followed_;
  std::vector<Watch> watches_;
  std::vector<std::size_t> variables_;  // on which the predicate depends

  mutable std::mutex mutex_;  // guards what follows
  std::vector<Comparison> compared_;
  Recurrence recurrence_;
  std::size_t may_read_ = 0;  // bytes of variables
};

}  // namespace troupe
