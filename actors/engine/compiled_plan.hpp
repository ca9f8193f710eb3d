// A compiled graph: its plan, the actors of its partitions on this node, and its counters.
//
// Threads: any. Ownership: functions, runs and the plan cache share it. It must not outlive its
// engine; `owner` throws after the engine's end.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <troupe/actors/executor/partition_actor.hpp>
#include <troupe/actors/executor/remote_plan.hpp>
#include <troupe/actors/observe/run_counts.hpp>
#include <troupe/actors/plan/pass_order.hpp>
#include <troupe/actors/runtime/clock.hpp>

namespace troupe::detail {

class EngineImpl;

/// A plan and its actors.
class CompiledPlan {
 public:
  /// The engine, while it lives.
  EngineImpl& owner() const {
    if (!engine) throw Error(Code::failed_precondition, "the engine of this function is gone");
    return *engine;
  }

  /// Reports the loops of all nodes. Blocks.
  std::vector<LoopReport> loops() const;
  /// Reports the loops of this node.
  std::vector<LoopReport> loops_here() const;
  /// Returns the measured times of this node's kernels.
  std::vector<NodeCost> costs_here() const;
  /// True if one of its nodes was lost.
  bool is_broken() const { return troupe.remote && troupe.remote->is_broken(); }

  EngineImpl* engine = nullptr;  // null after the engine's end
  PlanActors troupe;
  std::vector<PassReport> reports;
  CostOptions costs = {};                  // placement's input
  Measured measured = {};                  // placement's input
  std::vector<std::string> warnings = {};  // about effects that the plan leaves out

  /// At the owner of a plan over several nodes: its input, kept to make it again when a node is
  /// lost.
  std::unique_ptr<const Placed> placed = {};
  std::mutex renewal_mutex = {};  // guards renewed
  std::shared_ptr<CompiledPlan> renewed = {};
  std::shared_ptr<StateStore> states = {};  // for a part of another node's plan: its owner's
  std::uint64_t constant_bytes = 0;
  std::uint64_t graph = 0;  // id of the compiled graph; 0: the plan came from another node
  const std::int64_t made_ns = epoch_ns();
  // Counts of runs that this node has seen; they publish nothing.
  std::atomic<std::uint64_t> started{0}, ended{0}, failed{0};
  RunDurationCounter durations;  // ended runs
};

}  // namespace troupe::detail
