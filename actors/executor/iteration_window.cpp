// Loops within a partition: the iterations that are open at once, predicates and exits.
#include <troupe/actors/executor/firing_rule.hpp>

#include <algorithm>
#include <new>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/fault_injection.hpp>

namespace troupe::detail {

FrameState& Partition::instance_at(IterationState& parent, std::int32_t number) {
  FrameState*& child = parent.children[static_cast<std::size_t>(
      mine_.frames[static_cast<std::size_t>(number)].child_slot)];
  if (!child) {
    child = &frames_.take(parent, number, observer_.now());
    open(*child);
  }
  return *child;
}

IterationState& Partition::open(FrameState& instance) {
  if (instance.parent) observer_.count_time(instance);
  const FramePlan& frame = *instance.frame;
  if (is_planted(Planted::exception_in_turn) && instance.parent && instance.opened == 2)
    throw std::bad_alloc();
  IterationState& it = frames_.take_iteration(instance);
  it.unfired = frame.unfired() - (is_planted(Planted::child_forgotten) ? frame.children : 0);
  if (instance.parent) observer_.iteration_opened(instance, it.number);
  const bool is_forgotten = is_planted(Planted::enter_not_replayed) && it.number > 0;
  const bool is_steady =
      instance.invariants_pending == 0 && !instance.has_dead_invariant && !is_forgotten;
  std::copy_n((is_steady ? frame.steady : frame.awaited).data(), it.awaited.size(),
              it.awaited.data());
  ++it.unfired;  // the iteration must not end during these deliveries
  if (is_steady) {
    for (const FramePlan::Forward& forward : frame.forwards)
      deliver(it, forward.target,
              Value(instance.invariants[static_cast<std::size_t>(forward.invariant)]));
    for (auto root = frame.roots.rbegin(); root != frame.roots.rend(); ++root)
      enable(it, frame.nodes[static_cast<std::size_t>(*root)]);
  } else {
    for (std::size_t v = 0; v < instance.invariants.size(); ++v) {
      if (!instance.invariant_came[v] || is_forgotten) continue;
      if (instance.invariants[v].has_value())
        deliver_all(it, frame.invariant_targets[v], Value(instance.invariants[v]));
      else deliver_all_dead(it, frame.invariant_targets[v]);
    }
  }
  if (!instance.future.empty()) edges_.deliver_future(it);
  fired(it);
  return it;
}

void Partition::enter(IterationState& from, const PartitionPlan::Enter& enter, Value* value) {
  FrameState& instance = instance_at(from, enter.frame);
  if (enter.invariant < 0) {
    IterationState& first = *instance.ring[0];
    if (value) {
      deliver_all(first, enter.targets, std::move(*value));
      deliver_all(first, enter.index_targets, Tensor::scalar(std::int32_t{0}));
    } else {
      deliver_all_dead(first, enter.targets);
      deliver_all_dead(first, enter.index_targets);
    }
  } else {
    const auto v = static_cast<std::size_t>(enter.invariant);
    --instance.invariants_pending;
    instance.invariant_came[v] = 1;
    if (value) instance.invariants[v] = std::move(*value);
    else instance.invariants[v].reset(), instance.has_dead_invariant = true;
    // An iteration that opens meanwhile gets the value from `open`: a NextIteration may use it at
    // once.
    for (std::int64_t n = instance.oldest, opened = instance.opened; n < opened; ++n) {
      IterationState& it = *instance.at(n);
      if (value) deliver_all(it, enter.targets, Value(instance.invariants[v]));
      else deliver_all_dead(it, enter.targets);
    }
  }
  // counted down after the deliveries, because they may end loops within this one
  if (--instance.enters_pending == 0) advance(instance);
}

void Partition::exit(IterationState& from, const PartitionPlan::Exit& exit, Value* value) {
  if (!value && is_planted(Planted::exit_not_withheld))
    deliver_all_dead(*from.instance->parent, exit.targets);
  if (!value) return;  // sent when the instance ends, if nothing live has left
  FrameState& instance = *from.instance;
  char& exited = instance.exited[static_cast<std::size_t>(exit.ordinal)];
  if (is_planted(Planted::early_exit) && exited) return;
  if (exited) {
    const std::string why = fmt::format(
        "two iterations of loop '{}' leave by it; let it take the false side of a Switch on the "
        "loop's LoopCond",
        instance.frame->name);
    failures_.fail_at(*instance.run_state->run, exit.source,
                      Status(Code::failed_precondition, why));
    return;
  }
  exited = 1;
  deliver_all(*instance.parent, exit.targets, std::move(*value));
}

void Partition::predicate(IterationState& iteration, Value&& value) {
  if (value.is_inline() && value.dtype() == DType::boolean) {
    const bool goes_on = is_true(value);
    if (iteration.instance->broadcasts_predicate())
      edges_.broadcast_predicate(iteration, &value, goes_on);
    decide(iteration, goes_on);
    return;
  }
  if (iteration.instance->broadcasts_predicate())
    edges_.broadcast_predicate(iteration, &value, false);
  const Tensor& t = value.tensor();
  const bool is_one = t.has_value() && t.shape().elements() == 1;  // else the Switches fail the run
  if (is_one && !t.is_on_host()) {
    ++iteration.unfired;  // until the copy has arrived
    kernels_.ask_device(iteration, nullptr, t);
    return;
  }
  decide(iteration, is_one && t.at(0) != 0);
}

// The predicate has come: the next iteration opens, or waits for the iteration window.
void Partition::decide(IterationState& iteration, bool goes_on) {
  FrameState& instance = *iteration.instance;
  iteration.continuation =
      goes_on ? IterationState::Continuation::goes_on : IterationState::Continuation::ends;
  if (goes_on) {
    if (instance.opened - instance.oldest <
        instance.frame->window + is_planted(Planted::window_off_by_one))
      open(instance);
    else instance.must_open = true, observer_.window_waited(instance);
    for (IterationState::Next& token : iteration.pending_next)
      next(iteration, token.loop, token.is_dead ? nullptr : &token.value);
  }
  iteration.pending_next.clear();
}

// Takes the token of a NextIteration; null: a dead one. It is kept only if it has to wait. In a
// loop without a predicate no live token goes on if the run has failed: its constants come by no
// firing that could be dead.
void Partition::next(IterationState& from, std::int32_t loop, Value* value) {
  if (!from.instance->frame->has_predicate && from.instance->run_state->run->is_poisoned())
    value = nullptr;
  const auto kept = [loop, value] {
    return IterationState::Next{loop, value == nullptr, value ? std::move(*value) : Value()};
  };
  FrameState& instance = *from.instance;
  if (from.continuation == IterationState::Continuation::open) {
    if (instance.frame->has_predicate || !value) {
      from.pending_next.push_back(kept());
      return;
    }
    decide(from, true);  // dead tokens before it go on too, because their users await them
  }
  if (from.continuation == IterationState::Continuation::ends) return;
  std::int64_t n = from.number + 1;
  if (is_planted(Planted::wrong_iteration) && n < instance.opened) n = instance.opened - 1;
  if (n < instance.opened) deliver_next_iteration(*instance.at(n), loop, value);
  else instance.waiting.push_back(kept());
}

void Partition::deliver_next_iteration(IterationState& iteration, std::int32_t number,
                                       Value* value) {
  const PartitionPlan::Loop& loop = mine_.loops[static_cast<std::size_t>(number)];
  if (!value) {
    deliver_all_dead(iteration, loop.targets);
    deliver_all_dead(iteration, loop.index_targets);
    return;
  }
  if (observer_.looks_closer()) [[unlikely]]
    observer_.next_value(iteration, number, *value);
  deliver_all(iteration, loop.targets, std::move(*value));
  if (loop.index_targets.first != loop.index_targets.last)
    deliver_all(iteration, loop.index_targets, Tensor::scalar(std::int32_t{1}));
}

// ---- ends

// An ended instance may be the last thing that the iteration around it waits for, and so on
// outwards. This is a loop, not a recursion, because calls may be nested deep.
void Partition::advance(FrameState& instance) {
  for (FrameState* i = &instance; i;) {
    IterationState* parent = advance_one(*i);
    i = parent && --parent->unfired == 0 ? parent->instance : nullptr;
  }
}

// Gives back iterations that are done, oldest first, and opens the one that waited. Returns the
// iteration around the instance if that has ended.
IterationState* Partition::advance_one(FrameState& instance) {
  if (instance.enters_pending > 0 || instance.is_advancing) return nullptr;
  instance.is_advancing = true;
  while (instance.oldest < instance.opened) {
    IterationState*& slot = instance.at(instance.oldest);
    if (slot->unfired > 0) {
      instance.is_advancing = false;
      return nullptr;
    }
    frames_.give_back(*slot, instance.number);
    slot = nullptr;
    const auto edges = static_cast<std::size_t>(instance.frame->receives);
    std::fill_n(instance.received.begin() +
                    static_cast<std::ptrdiff_t>(instance.known_place(instance.oldest) * edges),
                edges, 0);
    if (instance.parent) observer_.count_time(instance);
    ++instance.oldest;
    if (instance.parent && !instance.frame->senders.empty())
      edges_.grant(instance, instance.has_large ? CutEdges::Credit::all : CutEdges::Credit::due);
    if (instance.must_open) {
      instance.must_open = false;
      std::vector<IterationState::Next> waiting = std::move(instance.waiting);
      instance.waiting.clear();
      IterationState& it = open(instance);
      for (IterationState::Next& token : waiting)
        deliver_next_iteration(it, token.loop, token.is_dead ? nullptr : &token.value);
      waiting.clear();
      if (instance.waiting.empty()) instance.waiting = std::move(waiting);  // keeps its storage
    }
  }
  instance.is_advancing = false;
  return end(instance);
}

IterationState* Partition::end(FrameState& instance) {
  if (!instance.parent) {
    mark_drained(*instance.run_state);
    return nullptr;
  }
  IterationState& parent = *instance.parent;
  const FramePlan& frame = *instance.frame;
  for (std::size_t e = 0; e < frame.exits.size(); ++e)
    if (!instance.exited[e])
      deliver_all_dead(parent, mine_.exits[static_cast<std::size_t>(frame.exits[e])].targets);
  if (!frame.function)
    parent.children[static_cast<std::size_t>(frame.child_slot)] = frames_.ended();
  else if (instance.caller && !is_planted(Planted::call_not_waited_for)) deliver_call_end(instance);
  RunState& run_state = *instance.run_state;
  frames_.give_back(instance);
  return frame.function && mine_.has_cut_function ? call_ended(run_state, instance) : &parent;
}

}  // namespace troupe::detail
