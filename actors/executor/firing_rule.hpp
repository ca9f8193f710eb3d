// The path of every token, inline: a loop of scalars does little else.
#pragma once

#include <troupe/actors/executor/partition.hpp>

namespace troupe::detail {

// The node awaits nothing more.
inline void Partition::enable(IterationState& iteration, const PlanNode& node) {
  ReadyQueue& ready = iteration.instance->run_state->ready;
  if (node.rank == PlanNode::Rank::usual && !kernels_.is_heavy(node))
    ready.push({&iteration, &node});
  else ready.push_apart({&iteration, &node});
}

inline void Partition::count_down(IterationState& iteration, std::int32_t node, std::int32_t dead) {
  std::int32_t& awaited = iteration.awaited[static_cast<std::size_t>(node)];
  awaited = (awaited - 1) | dead;
  if ((awaited & IterationState::kCount) == 0)
    enable(iteration, iteration.instance->frame->nodes[static_cast<std::size_t>(node)]);
}

inline void Partition::deliver(IterationState& iteration, const Target& target, Value&& value) {
  if (!target.is_input()) return deliver_to_other(iteration, target, std::move(value));
  iteration.values[static_cast<std::size_t>(target.slot())].fill(std::move(value));
  count_down(iteration, target.node(), 0);
}

inline void Partition::deliver_all(IterationState& iteration, TargetRange range, Value&& value) {
  if (range.last - range.first == 1)
    deliver(iteration, mine_.targets[static_cast<std::size_t>(range.first)], std::move(value));
  else deliver_several(iteration, range, std::move(value));
}

// One of the things that the iteration waits for has happened: a node has fired, a token of another
// partition has arrived, a buffered token was sent, or a predicate was copied. At 0 it may end.
inline void Partition::fired(IterationState& iteration) {
  if (--iteration.unfired == 0) advance(*iteration.instance);
}

}  // namespace troupe::detail
