// Tokens within a partition: delivery by index, dead tokens, fetches and Merges.
#include <troupe/actors/executor/firing_rule.hpp>

#include <algorithm>
#include <new>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/fault_injection.hpp>

namespace troupe::detail {

void Partition::deliver_several(IterationState& iteration, TargetRange range, Value&& value) {
  if (range.first == range.last) {
    value.reset();
    return;
  }
  const Target* t = mine_.targets.data() + range.first;
  for (const Target* last = mine_.targets.data() + range.last - 1; t != last; ++t) {
    if (!t->is_input()) {
      if (!t->is(Destination::send) || !edges_.extend(iteration, t->index(), &value))
        deliver_to_other(iteration, *t, Value(value));
      continue;
    }
    // Not by way of a copy on the stack: read back at once, it would have to leave the store buffer
    // first.
    iteration.values[static_cast<std::size_t>(t->slot())].share(value);
    count_down(iteration, t->node(), 0);
  }
  deliver(iteration, *t, std::move(value));
}

void Partition::deliver_controls(IterationState& iteration, TargetRange range) {
  for (std::int32_t t = range.first; t < range.last; ++t)
    deliver(iteration, mine_.targets[static_cast<std::size_t>(t)], Value());
}

void Partition::deliver_all_dead(IterationState& iteration, TargetRange range) {
  if (is_planted(Planted::dropped_dead_token) && range.last - range.first > 1) --range.last;
  for (std::int32_t t = range.first; t < range.last; ++t) {
    const Target& target = mine_.targets[static_cast<std::size_t>(t)];
    // an Exit is dead only if nothing live has left when the loop ends: see `end`
    if (!target.is(Destination::exit) || is_planted(Planted::exit_not_withheld))
      deliver_dead(iteration, target);
  }
}

// Delivers a live token to a destination that is no input. Not every destination keeps the value: a
// fetch makes a copy on the host, a Merge may have passed on another one. So `value` is emptied,
// because the caller may hold it until the next firing.
void Partition::deliver_to_other(IterationState& iteration, const Target& target, Value&& value) {
  const std::int32_t i = target.index();
  switch (target.destination()) {
    case Destination::input: return deliver(iteration, target, std::move(value));
    case Destination::control: count_down(iteration, target.node(), 0); break;
    case Destination::merge: merge(iteration, target.node(), target.merge_input(), &value); break;
    case Destination::fetch: fetch(*iteration.instance->run_state, i, std::move(value)); break;
    case Destination::send: edges_.send(iteration, i, &value); break;
    case Destination::enter:
      enter(iteration, mine_.enters[static_cast<std::size_t>(i)], &value);
      break;
    case Destination::exit:
      exit(iteration, mine_.exits[static_cast<std::size_t>(i)], &value);
      break;
    case Destination::next: next(iteration, i, &value); break;
    case Destination::predicate: predicate(iteration, std::move(value)); break;
  }
  value.reset();
}

void Partition::deliver_dead(IterationState& iteration, const Target& target) {
  const std::int32_t i = target.index();
  switch (target.destination()) {
    case Destination::input:
    case Destination::control: count_down(iteration, target.node(), IterationState::kDead); return;
    case Destination::merge: merge(iteration, target.node(), target.merge_input(), nullptr); return;
    case Destination::fetch: fetch_dead(*iteration.instance->run_state->run, i); return;
    case Destination::send: edges_.send(iteration, i, nullptr); return;
    case Destination::enter:
      enter(iteration, mine_.enters[static_cast<std::size_t>(i)], nullptr);
      return;
    case Destination::exit:
      exit(iteration, mine_.exits[static_cast<std::size_t>(i)], nullptr);
      return;
    case Destination::next: next(iteration, i, nullptr); return;
    case Destination::predicate:
      if (iteration.instance->broadcasts_predicate())
        edges_.broadcast_predicate(iteration, nullptr, false);
      decide(iteration, false);
      return;
  }
}

void Partition::fetch(RunState& run_state, std::int32_t index, Value&& value) {
  if (value.kind() != Value::Kind::tensor || value.tensor().is_on_host()) {
    run_state.run->set_fetch(index, std::move(value));
    return;
  }
  run_state.pending_fetches.push_back(
      {index, stream_.start_copy_to_host(value.tensor()), value.tensor().shape()});
}

void Partition::fetch_dead(Run& run, std::int32_t index) {
  if (run.is_poisoned()) return;
  const Edge e = plan_->program.fetches[static_cast<std::size_t>(index)];
  failures_.fail(
      run, nullptr,
      Status(
          Code::failed_precondition,
          fmt::format("fetch {}, {}, does not have a value: it is in a branch that was not taken",
                      index, plan_->program.graph.describe(e.node))));
}

// A Merge passes the first live token on at once, and has fired when all have come.
void Partition::merge(IterationState& iteration, std::int32_t node, std::int32_t input,
                      Value* value) {
  std::int32_t& awaited = iteration.awaited[static_cast<std::size_t>(node)];
  --awaited;
  const bool is_last = (awaited & IterationState::kCount) == 0;
  const PlanNode& n = iteration.instance->frame->nodes[static_cast<std::size_t>(node)];
  const std::int32_t* ranges = mine_.output_targets.data() + n.first_output;
  if (value && !(awaited & IterationState::kMerged)) {
    awaited |= IterationState::kMerged;
    deliver_all(iteration, {ranges[0], ranges[1]}, std::move(*value));
    if (ranges[2] != ranges[3])
      deliver_all(iteration, {ranges[2], ranges[3]}, Tensor::scalar(input));
    if (ranges[4] != ranges[5]) deliver_controls(iteration, {ranges[4], ranges[5]});
  } else if ((is_last || is_planted(Planted::merge_of_the_dead)) &&
             !(awaited & IterationState::kMerged)) {
    if (is_planted(Planted::merge_of_the_dead)) awaited |= IterationState::kMerged;
    observer_.dead_firing(n);
    for (int o = 0; o < 3; ++o) deliver_all_dead(iteration, {ranges[2 * o], ranges[2 * o + 1]});
  }
  if (is_last) fired(iteration);
}

// ---- cut edges

void Partition::receive_in(RunState& run_state, Token& token) {
  if (mine_.receives[static_cast<std::size_t>(token.receive)].function < 0)
    edges_.receive(*run_state.root, token);
  else receive_in_call(run_state, token);
}

void Partition::held_token_sent(IterationState& iteration) { fired(iteration); }

void Partition::arrive(IterationState& iteration, const PartitionPlan::Receive& receive,
                       bool is_dead, Value&& value) {
  if (is_dead) {
    deliver_all_dead(iteration, receive.targets);
    if (receive.decides) decide(iteration, false);
  } else if (receive.targets.first == receive.targets.last) {
    if (receive.decides) predicate(iteration, std::move(value));
  } else {
    Value decision;  // stays on the host, although users may need a copy on the device
    if (receive.decides) decision = value;
    stream_.copy_to_device_or_fail(*iteration.instance->run_state->run, value, receive.source);
    deliver_all(iteration, receive.targets, std::move(value));
    if (receive.decides) predicate(iteration, std::move(decision));
  }
  fired(iteration);
}

}  // namespace troupe::detail
