// RunFailures: makes runs fail, with an error that names node, device and frame.
// Threads: `fail_at` any; the others in the partition's turn. Invariants: 1. a run keeps its first
// error; 2. an error names its node or, if none is known, the device.
#pragma once

#include <cstdint>

#include <troupe/actors/executor/frame_state.hpp>
#include <troupe/actors/executor/partition_observer.hpp>

namespace troupe {

class RunFailures {
 public:
  RunFailures(const Plan& plan, const PartitionPlan& mine, PartitionObserver& observer)
      : plan_(plan), mine_(mine), observer_(observer) {}

  /// Fails the run because of a node; null: none in particular.
  void fail(Run& run, const PlanNode* node, const Status& status);
  /// Fails the run because of a node of the program; -1: none in particular.
  void fail_at(Run& run, std::int32_t source, const Status& status);
  /// Fails the run because of a node in a resident loop; `where` describes the node.
  void fail_within(Run& run, const PlanNode& loop, const std::string& where, const Status& status);
  /// Adds the iterations around a firing to an error.
  static Status in_loop(const IterationState& iteration, Status status);

 private:
  const Plan& plan_;
  const PartitionPlan& mine_;
  PartitionObserver& observer_;
};

}  // namespace troupe
