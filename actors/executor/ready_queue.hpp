// ReadyQueue: the nodes of one run that can fire, in the order in which they do.
//
//   ready.push({&iteration, &node});  while (ready.has_next()) fire(ready.pop());
//
// The newest usual node fires first, because its inputs are warm. Heavy nodes and nodes of rank
// `last` are kept back: `has_next` does not see them until the partition moves them to the usual.
//
// Threads: the partition's turn. Invariants: 1. a ready node is in one list until it is popped or
// the queue is cleared; 2. nodes of rank `first` are popped before all others; 3. of the nodes of
// rank `last` the earliest leaves first.
#pragma once

#include <cstddef>
#include <cstdint>

#include <troupe/actors/plan/plan.hpp>
#include <troupe/actors/runtime/stack.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {

struct IterationState;

/// A node that awaits nothing more, in an iteration.
struct ReadyNode {
  IterationState* iteration;
  const PlanNode* node;
};

class ReadyQueue {
 public:
  void reserve(std::size_t nodes) {
    usual_.reserve(nodes);
    heavy_.reserve(nodes);
  }

  void push(ReadyNode ready) { usual_.push_back(ready); }
  /// Adds a node that has another rank than `usual`, or is heavy.
  void push_apart(ReadyNode ready);

  /// True if a node is ready, kept back or not.
  bool is_empty() const {
    return usual_.empty() && first_.empty() && heavy_.empty() && last_.empty();
  }
  std::size_t size() const { return usual_.size() + heavy_.size() + first_.size() + last_.size(); }
  /// True if `pop` has a node.
  bool has_next() const { return !usual_.empty() || !first_.empty(); }
  ReadyNode pop() {
    Stack<ReadyNode>& from = first_.empty() ? usual_ : first_;
    const ReadyNode next = from.back();
    from.pop_back();
    return next;
  }

  std::size_t heavy() const { return heavy_.size(); }
  ReadyNode pop_heavy() {
    const ReadyNode next = heavy_.back();
    heavy_.pop_back();
    return next;
  }

  /// Makes the earliest node of rank `last` a usual one, if there is no usual one.
  void admit_last();
  /// Moves another node to where `pop` takes it: each in turn, and a node of rank `last` if its
  /// iteration is the oldest. False if `pop` has none. See Note [Ready order] in PROTOCOL.md.
  bool rotate();

  template <class F>
  void each(F f) const {
    for (const Stack<ReadyNode>* stack : {&usual_, &heavy_, &first_, &last_})
      for (const ReadyNode& ready : *stack) f(ready);
  }
  void clear() {
    for (Stack<ReadyNode>* stack : {&usual_, &heavy_, &first_, &last_}) stack->clear();
  }

 private:
  Stack<ReadyNode> usual_;
  Stack<ReadyNode> heavy_;  // kernels that are worth another worker
  Stack<ReadyNode> first_;  // by rank
  Stack<ReadyNode> last_;   // by rank; the earliest iteration's fires first
  std::size_t rotations_ = 0;
};

}  // namespace troupe
