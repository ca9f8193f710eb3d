// PredicateTracer: the values that decide whether loops go on, observed for a while after a
// snapshot, so that `diagnose` can prove that a loop never ends.
//
//   tracer.start();                                   // a snapshot was asked for
//   if (tracer.is_active()) tracer.observe(iteration, node);   // before a node fires
//   tracer.describe(instance, open_loop);             // the next snapshot
//
// Threads: the partition's turn. Invariant: a `start` observes a bounded number of firings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <troupe/actors/executor/frame_state.hpp>
#include <troupe/actors/observe/loop_condition.hpp>
#include <troupe/actors/observe/snapshot.hpp>
#include <troupe/actors/plan/plan.hpp>

namespace troupe {

class PredicateTracer {
 public:
  PredicateTracer(const Plan& plan, const PartitionPlan& mine) : plan_(plan), mine_(mine) {}

  /// Observes the next firings. The first call also finds the values that decide loops.
  void start();
  bool is_active() const { return observes_ > 0; }
  /// Keeps the operands of the node if it compares values that decide its loop. The inputs must be
  /// single elements on the host. Its kernel computes the same result to the bit.
  void observe(const IterationState& iteration, const PlanNode& node);
  /// Keeps the value with which the next iteration begins.
  void observe_next(const IterationState& iteration, std::int32_t loop, const Value& value);
  /// Adds what was observed of an execution.
  void describe(const FrameState& instance, detail::OpenLoop& loop) const;
  /// Returns the node of the program that decides the loop; -1: it is in another partition.
  std::int32_t predicate_of(const FramePlan& frame) const;

 private:
  /// The values that decide whether a loop goes on.
  struct Deciding {
    struct Watch {
      const PlanNode* node;
      const Followed::Watch* of;
    };
    bool is_endless = false;  // the predicate never changes
    Followed followed;
    std::vector<Watch> here;              // in this frame
    std::vector<std::int32_t> variables;  // into PartitionPlan::loops, if all of them are here
  };

  void look(const IterationState& iteration, const PlanNode& node);
  const Value& input_of(const IterationState& iteration, const PlanNode& node,
                        std::int32_t input) const;
  const PlanNode* predicate_node(const FramePlan& frame) const;
  void follow_predicates();
  bool ends_with_a_queue(const FramePlan& loop) const;

  const Plan& plan_;
  const PartitionPlan& mine_;
  std::vector<Deciding> deciding_;  // by frame; empty until the first `start`
  int observes_ = 0;                // firings that are still observed
  std::size_t may_read_ = 0;        // bytes of loop variables that may still be read
};

}  // namespace troupe
