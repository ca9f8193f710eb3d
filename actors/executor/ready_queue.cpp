#include <troupe/actors/executor/ready_queue.hpp>

#include <utility>

#include <troupe/actors/executor/frame_state.hpp>

namespace troupe {
namespace {

/// Returns the node whose iteration comes first; the end if there is none.
ReadyNode* earliest(Stack<ReadyNode>& of) {
  ReadyNode* found = of.begin();
  for (ReadyNode* it = of.begin(); it != of.end(); ++it)
    if (compare_order(*it->iteration, *found->iteration) < 0) found = it;
  return found;
}

}  // namespace

void ReadyQueue::push_apart(ReadyNode ready) {
  Stack<ReadyNode>& of = ready.node->rank == PlanNode::Rank::first  ? first_
                         : ready.node->rank == PlanNode::Rank::last ? last_
                                                                    : heavy_;
  of.push_back(ready);
}

// A value that is taken out of a list early is memory that cannot be swapped out. Loops that go
// backwards know their length before they have computed anything, and would otherwise take as many
// values as their iteration window has iterations.
void ReadyQueue::admit_last() {
  if (!usual_.empty() || last_.empty()) return;
  ReadyNode* next = earliest(last_);
  usual_.push_back(*next);
  last_.erase(next);
}

bool ReadyQueue::rotate() {
  Stack<ReadyNode>& from = first_.empty() ? usual_ : first_;
  if (from.empty()) return false;
  Stack<ReadyNode>& waiting = usual_.empty() ? first_ : usual_;
  std::swap(*(waiting.begin() + rotations_++ % waiting.size()), waiting.back());
  if (&waiting != &from) {
    from.push_back(waiting.back());
    waiting.pop_back();
  }
  if (ReadyNode* next = earliest(last_); next != last_.end() && is_oldest(*next->iteration)) {
    from.push_back(*next);
    last_.erase(next);
  }
  return true;
}

}  // namespace troupe
