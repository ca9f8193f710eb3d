// What the actors of a partition have done, and what predicates compare: told to who asks, counted for nobody.
#include <troupe/actors/partition.hpp>

#include <algorithm>
#include <unordered_set>

namespace troupe {

// A node fires once an iteration: what has fired are all iterations that were opened, but for what has not fired in those
// that are open, and what was given up.
std::vector<ActorCounters> Partition::actor_counters() const {
  struct Here {
    std::uint64_t awaiting = 0, ready = 0, running = 0;
    std::int32_t waiting_for = -1;
  };
  std::vector<Here> here(static_cast<std::size_t>(mine_.nodes));
  const auto at = [](std::int32_t i) { return static_cast<std::size_t>(i); };
  for (const auto& instance : instances_) {
    if (!instance->record) continue;
    for (std::int64_t n = instance->oldest; n < instance->opened; ++n) {
      const Iteration* iteration = instance->ring[static_cast<std::size_t>(n) & (instance->ring.size() - 1)];
      if (!iteration) continue;
      for (std::size_t i = 0; i < instance->frame->nodes.size(); ++i) {
        if ((iteration->awaited[i] & Iteration::kCount) == 0) continue;
        const PlanNode& node = instance->frame->nodes[i];
        Here& h = here[at(node.index)];
        ++h.awaiting;
        if (h.waiting_for < 0) h.waiting_for = missing_input(*iteration, node);
      }
    }
  }
  for (const Record* r : active_)
    for (const auto* ready : {&r->ready, &r->heavy, &r->first, &r->last})
      for (const Record::Ready& one : *ready) ++here[at(one.node->index)].ready;
  const std::unordered_set<const Firing*> spare(spare_.begin(), spare_.end());
  for (const auto& firing : firings_)
    if (firing->node && !spare.contains(firing.get())) ++here[at(firing->node->index)].running;

  std::vector<ActorCounters> all;
  all.reserve(here.size());
  const std::int32_t failed = failed_.load(std::memory_order_relaxed);
  for (std::size_t f = 0; f < mine_.frames.size(); ++f) {
    const LoopCounters& counters = loop_counters_[f];
    const std::uint64_t opened = counters.instances.load(std::memory_order_relaxed) + counters.iterations.load(std::memory_order_relaxed);
    for (const PlanNode& node : mine_.frames[f].nodes) {
      const Here& h = here[at(node.index)];
      const Cost& cost = costs_[at(node.index)];
      ActorCounters& c = all.emplace_back();
      c.node = node.source;
      c.dead = dead_[at(node.index)];
      const std::uint64_t not_fired = h.awaiting + h.ready + h.running + skipped_[at(node.index)] + c.dead;
      c.fires = opened > not_fired ? opened - not_fired : 0;
      c.busy_ns = c.fires * static_cast<std::uint64_t>(cost.nanoseconds.load(std::memory_order_relaxed));
      c.bytes_out = c.fires * cost.bytes;
      c.state = failed == node.source ? ActorStatus::failed
                : h.running > 0       ? ActorStatus::running
                : h.ready > 0         ? ActorStatus::ready
                : h.awaiting > 0      ? ActorStatus::waiting
                : c.dead > 0 && c.fires == 0 ? ActorStatus::dead
                                             : ActorStatus::idle;
      if (c.state == ActorStatus::waiting) c.waiting_for = h.waiting_for;
    }
  }
  return all;
}

// Whose token a node still awaits; -1: a control edge's, or that of a dead one, which leaves no value.
std::int32_t Partition::missing_input(const Iteration& iteration, const PlanNode& node) const {
  const troupe::Node& of_program = plan_->program.graph.node(node.source);
  if (node.kind == PlanNode::Kind::merge) return -1;
  for (std::int32_t i = 0; i < node.inputs && i < static_cast<std::int32_t>(of_program.inputs.size()); ++i) {
    if (iteration.values[static_cast<std::size_t>(node.first_input + i)].has_value()) continue;
    const Held* held = mine_.held.data() + node.first_held;
    if (std::none_of(held, held + node.held, [&](const Held& h) { return h.slot == node.first_input + i; })) return of_program.inputs[static_cast<std::size_t>(i)].node;
  }
  return -1;
}

std::vector<EdgeCounters> Partition::edge_counters() const {
  std::vector<EdgeCounters> all;
  for (std::size_t s = 0; s < sent_.size(); ++s) {
    const PartitionPlan::Send& send = mine_.sends[s];
    all.push_back({send.partition, send.receive, sent_[s].tokens.load(std::memory_order_relaxed), sent_[s].bytes.load(std::memory_order_relaxed), 0, 0});
  }
  for (std::size_t r = 0; r < received_.size(); ++r)
    all.push_back({index_, static_cast<std::int32_t>(r), 0, 0, received_[r].tokens.load(std::memory_order_relaxed), mine_.frames[static_cast<std::size_t>(mine_.receives[r].frame)].window});
  return all;
}

// What a predicate is about to compare, if it is two scalars on the host.
void Partition::observe(const Iteration& iteration, const PlanNode& node) {
  Observed& seen = observed_[static_cast<std::size_t>(iteration.instance->number)];
  if (seen.predicate != &node || node.inputs != 2) return;
  const Value &left = input_of(iteration, node, 0), &right = input_of(iteration, node, 1);
  const auto is_number = [](const Value& v) { return v.is_inline() || (v.kind() == Value::Kind::tensor && v.dtype() != DType::string && v.tensor().is_on_host() && v.tensor().shape().elements() == 1); };
  if (!is_number(left) || !is_number(right)) return;
  seen.at = iteration.number;
  seen.left = left.tensor().at(0);
  seen.right = right.tensor().at(0);
}

// Of a node that is about to fire: what it awaited, or holds.
const Value& Partition::input_of(const Iteration& iteration, const PlanNode& node, std::int32_t input) const {
  const Held* held = mine_.held.data() + node.first_held;
  for (const Held* last = held + node.held; held != last; ++held)
    if (held->slot == node.first_input + input)
      return held->constant >= 0 ? mine_.constants[static_cast<std::size_t>(held->constant)] : iteration.instance->invariants[static_cast<std::size_t>(held->invariant)];
  return iteration.values[static_cast<std::size_t>(node.first_input + input)];
}

}  // namespace troupe
