// What every token goes through, where the compiler sees it: a loop of scalars does little else.
#pragma once

#include <troupe/actors/executor/partition.hpp>

namespace troupe {

inline bool Partition::is_heavy(const PlanNode& node) const {
  if (!has_heavy_ || node.kind != PlanNode::Kind::kernel) return false;
  const Cost& cost = costs_[static_cast<std::size_t>(node.index)];
  return cost.samples >= 2 && cost.nanoseconds.load(std::memory_order_relaxed) >= kHeavy;
}

// The node awaits nothing more.
inline void Partition::enable(Iteration& iteration, const PlanNode& node) {
  if (node.rank == PlanNode::Rank::usual && !is_heavy(node))
    iteration.instance->record->ready.push_back({&iteration, &node});
  else enable_apart(iteration, node);
}

inline void Partition::count_down(Iteration& iteration, std::int32_t node, std::int32_t dead) {
  std::int32_t& awaited = iteration.awaited[static_cast<std::size_t>(node)];
  awaited = (awaited - 1) | dead;
  if ((awaited & Iteration::kCount) == 0)
    enable(iteration, iteration.instance->frame->nodes[static_cast<std::size_t>(node)]);
}

inline void Partition::deliver(Iteration& iteration, const Target& target, Value&& value) {
  if ((target.node | target.slot) < 0)
    return deliver_elsewhere(iteration, target, std::move(value));
  iteration.values[static_cast<std::size_t>(target.slot)].fill(std::move(value));
  count_down(iteration, target.node, 0);
}

inline void Partition::deliver_all(Iteration& iteration, TargetRange range, Value&& value) {
  if (range.last - range.first == 1)
    deliver(iteration, mine_.targets[static_cast<std::size_t>(range.first)], std::move(value));
  else deliver_several(iteration, range, std::move(value));
}

// What no token brings, into the inputs of a node that fires.
[[gnu::always_inline]] inline void Partition::take_held(Iteration& iteration,
                                                        const PlanNode& node) {
  const Held* held = mine_.held.data() + node.first_held;
  for (const Held* last = held + node.held; held != last; ++held)
    iteration.values[static_cast<std::size_t>(held->slot)].share(
        held->constant >= 0
            ? mine_.constants[static_cast<std::size_t>(held->constant)]
            : iteration.instance->invariants[static_cast<std::size_t>(held->invariant)]);
}

inline void Partition::empty_inputs(Iteration& iteration, const PlanNode& node) {
  Value* input = iteration.values.data() + node.first_input;
  for (Value* const last = input + node.inputs; input != last; ++input) input->reset();
}

// Of tokens: both dead, or both nothing, as what a control edge carries, or the same scalar.
inline bool Partition::is_same(bool is_dead, const Value& a, const Value* b) {
  if (is_dead || !b) return is_dead && !b;
  return a.is_same_scalar(*b) || !(a.has_value() || b->has_value());
}

// What goes to another node is the same as in the iteration before, and that has not gone yet: then
// it is one more of these. They are counted when they go.
inline bool Partition::extend(const Iteration& from, std::int32_t send, const Value* value) {
  Going& going = going_[static_cast<std::size_t>(send)];
  if (!is_next(going, from)) return false;
  if (!is_same(going.token->is_dead, going.token->value, value) || going.token->run->is_poisoned())
    return false;
  extend(going);
  return true;
}

inline bool Partition::is_next(const Going& going, const Iteration& iteration) {
  return going.execution == iteration.instance->execution && going.next == iteration.number;
}
inline void Partition::extend(Going& going) {
  if (++going.next == going.end) [[unlikely]]
    went_on_to_the_end(going);
}

// An inline bool.
inline bool Partition::is_true(const Value& value) {
  return value.is_inline() && value.dtype() == DType::boolean &&
         *static_cast<const unsigned char*>(value.scalar_bits()) != 0;
}

// One thing less that the iteration waits for.
inline void Partition::fired(Iteration& iteration) {
  if (--iteration.unfired == 0) advance(*iteration.instance);
}

}  // namespace troupe
