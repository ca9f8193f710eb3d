// What tokens do within a partition: delivery by index, Merges, and the frames of loops.
#include <troupe/actors/executor/partition_tokens.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/planted.hpp>

namespace troupe {

// ---- tokens

void Partition::deliver_several(Iteration& iteration, TargetRange range, Value&& value) {
  if (range.first == range.last) {
    value.reset();
    return;
  }
  const Target* t = mine_.targets.data() + range.first;
  for (const Target* last = mine_.targets.data() + range.last - 1; t != last; ++t) {
    if ((t->node | t->slot) < 0) {
      if (t->node != Target::kRemote || !extend(iteration, t->slot, &value))
        deliver_elsewhere(iteration, *t, Value(value));
      continue;
    }
    // Not by way of a copy on the stack: read back at once, it would have to leave the store buffer
    // first.
    iteration.values[static_cast<std::size_t>(t->slot)].share(value);
    count_down(iteration, t->node, 0);
  }
  deliver(iteration, *t, std::move(value));
}

void Partition::deliver_controls(Iteration& iteration, TargetRange range) {
  for (std::int32_t t = range.first; t < range.last; ++t)
    deliver(iteration, mine_.targets[static_cast<std::size_t>(t)], Value());
}

void Partition::deliver_all_dead(Iteration& iteration, TargetRange range) {
  if (is_planted(Planted::dropped_dead_token) && range.last - range.first > 1) --range.last;
  for (std::int32_t t = range.first; t < range.last; ++t) {
    const Target& target = mine_.targets[static_cast<std::size_t>(t)];
    // else see `exit`
    if (target.node != Target::kExit || is_planted(Planted::exit_not_withheld))
      deliver_dead(iteration, target);
  }
}

// To a node's control edge, to a Merge, or to what is no node. Not all of them keep the value: a
// copy to the host is made of it, another live one was passed on. Whoever calls may hold it until
// the next firing, or the next run: so nothing is left in it.
void Partition::deliver_elsewhere(Iteration& iteration, const Target& target, Value&& value) {
  if (target.node >= 0) {
    if (target.slot > Target::kMerge) count_down(iteration, target.node, 0);
    else merge(iteration, target.node, Target::kMerge - target.slot, &value);
    value.reset();
    return;
  }
  switch (target.node) {
    case Target::kFetch: fetch(*iteration.instance->record, target.slot, std::move(value)); break;
    case Target::kRemote: send(iteration, target.slot, &value); break;
    case Target::kEnter:
      enter(iteration, mine_.enters[static_cast<std::size_t>(target.slot)], &value);
      break;
    case Target::kExit:
      exit(iteration, mine_.exits[static_cast<std::size_t>(target.slot)], &value);
      break;
    case Target::kNext: next(iteration, target.slot, &value); break;
    case Target::kPredicate: predicate(iteration, std::move(value)); break;
  }
  value.reset();
}

void Partition::deliver_dead(Iteration& iteration, const Target& target) {
  if (target.node >= 0) {
    if (target.slot <= Target::kMerge)
      merge(iteration, target.node, Target::kMerge - target.slot, nullptr);
    else count_down(iteration, target.node, Iteration::kDead);
    return;
  }
  switch (target.node) {
    case Target::kFetch: fetch_dead(*iteration.instance->record->run, target.slot); return;
    case Target::kRemote: send(iteration, target.slot, nullptr); return;
    case Target::kEnter:
      enter(iteration, mine_.enters[static_cast<std::size_t>(target.slot)], nullptr);
      return;
    case Target::kExit:
      exit(iteration, mine_.exits[static_cast<std::size_t>(target.slot)], nullptr);
      return;
    case Target::kNext: next(iteration, target.slot, nullptr); return;
    case Target::kPredicate:
      if (tells_others(iteration)) tell_others(iteration, nullptr, false);
      decide(iteration, false);
      return;
  }
}

void Partition::fetch_dead(Run& run, std::int32_t index) {
  if (run.is_poisoned()) return;
  const Edge e = plan_->program.fetches[static_cast<std::size_t>(index)];
  fail(run, nullptr,
       Status(
           Code::failed_precondition,
           fmt::format("fetch {}, {}, does not have a value: it is in a branch that was not taken",
                       index, plan_->program.graph.describe(e.node))));
}

// What does not fire next: by its rank, or because it is heavy.
void Partition::enable_apart(Iteration& iteration, const PlanNode& node) {
  Record& record = *iteration.instance->record;
  Stack<Record::Ready>& of = node.rank == PlanNode::Rank::first  ? record.first
                             : node.rank == PlanNode::Rank::last ? record.last
                                                                 : record.heavy;
  of.push_back({&iteration, &node});
}

// A Merge passes the first live token on at once, and has fired when all have come.
void Partition::merge(Iteration& iteration, std::int32_t node, std::int32_t input, Value* value) {
  std::int32_t& awaited = iteration.awaited[static_cast<std::size_t>(node)];
  --awaited;
  const bool is_last = (awaited & Iteration::kCount) == 0;
  const PlanNode& n = iteration.instance->frame->nodes[static_cast<std::size_t>(node)];
  const std::int32_t* ranges = mine_.output_targets.data() + n.first_output;
  if (value && !(awaited & Iteration::kMerged)) {
    awaited |= Iteration::kMerged;
    deliver_all(iteration, {ranges[0], ranges[1]}, std::move(*value));
    if (ranges[2] != ranges[3])
      deliver_all(iteration, {ranges[2], ranges[3]}, Tensor::scalar(input));
    if (ranges[4] != ranges[5]) deliver_controls(iteration, {ranges[4], ranges[5]});
  } else if ((is_last || is_planted(Planted::merge_of_the_dead)) &&
             !(awaited & Iteration::kMerged)) {
    if (is_planted(Planted::merge_of_the_dead)) awaited |= Iteration::kMerged;
    ++dead_[static_cast<std::size_t>(n.index)];
    for (int o = 0; o < 3; ++o) deliver_all_dead(iteration, {ranges[2 * o], ranges[2 * o + 1]});
  }
  if (is_last) fired(iteration);
}

// ---- frames

// The instance of a loop that lies in that iteration.
Instance& Partition::instance_at(Iteration& parent, std::int32_t number) {
  Instance*& child = parent.children[static_cast<std::size_t>(
      mine_.frames[static_cast<std::size_t>(number)].child_slot)];
  if (!child) {
    child = &take_instance(parent, number);
    open(*child);
  }
  return *child;
}

Instance& Partition::take_instance(Iteration& parent, std::int32_t number) {
  const FramePlan& frame = mine_.frames[static_cast<std::size_t>(number)];
  auto& spare = spare_instances_[static_cast<std::size_t>(number)];
  if (spare.empty()) {
    Instance& fresh = *instances_.emplace_back(std::make_unique<Instance>());
    fresh.frame = &frame;
    fresh.number = number;
    fresh.ring.resize(std::bit_ceil(static_cast<std::size_t>(frame.window)));
    fresh.came.resize(fresh.known_places() * static_cast<std::size_t>(frame.receives));
    fresh.exited.resize(frame.exits.size());
    fresh.invariants.resize(static_cast<std::size_t>(frame.invariants));
    fresh.invariant_came.resize(static_cast<std::size_t>(frame.invariants));
    spare.push_back(&fresh);
  }
  Instance& i = *spare.back();
  spare.pop_back();
  i.record = parent.instance->record;
  i.parent = &parent;
  i.caller = nullptr;
  i.depth = parent.instance->depth;
  i.oldest = i.opened = 0;
  i.counted = now_;
  i.enters_pending = frame.enters;
  i.invariants_pending = frame.invariants;
  i.has_dead_invariant = i.must_open = false;
  i.execution = ++executions_;
  i.compared.clear();
  i.recurrence.forget();
  i.granted = frame.granted;
  std::fill(i.came.begin(), i.came.end(), 0);
  std::fill(i.exited.begin(), i.exited.end(), 0);
  std::fill(i.invariant_came.begin(), i.invariant_came.end(), 0);
  return i;
}

// As many iterations as there are have been open since the last one of the instance opened or
// ended.
void Partition::count_time(Instance& instance) {
  if (now_ <= instance.counted) return;
  LoopCounters& c = loop_counters_[static_cast<std::size_t>(instance.number)];
  const std::uint64_t passed = now_ - std::exchange(instance.counted, now_);
  add(c.time, passed);
  add(c.iterations_time, passed * static_cast<std::uint64_t>(instance.opened - instance.oldest));
}

Iteration& Partition::open(Instance& instance) {
  if (instance.parent) count_time(instance);
  const FramePlan& frame = *instance.frame;
  if (is_planted(Planted::exception_in_turn) && instance.parent && instance.opened == 2)
    throw std::bad_alloc();
  auto& spare = spare_iterations_[static_cast<std::size_t>(instance.number)];
  if (spare.empty()) {
    Iteration& fresh = *iterations_.emplace_back(std::make_unique<Iteration>());
    fresh.values.resize(static_cast<std::size_t>(frame.slots));
    fresh.children.resize(static_cast<std::size_t>(frame.children));
    fresh.awaited.resize(frame.nodes.size());
    spare.push_back(&fresh);
  }
  Iteration& it = *spare.back();
  spare.pop_back();
  it.instance = &instance;
  it.number = instance.opened++;
  const std::uint64_t key = instance.caller
                                ? mine_.calls[static_cast<std::size_t>(instance.caller->number)].key
                                : frame.key;
  it.tag = instance.parent
               ? fold_tag(instance.parent->tag, key, static_cast<std::uint64_t>(it.number))
               : 0;
  it.unfired = frame.unfired() - (is_planted(Planted::child_forgotten) ? frame.children : 0);
  it.fate = Iteration::Fate::open;
  if (!frame.has_predicate) it.undecided.clear();  // of a last iteration, which nobody decided on
  std::fill(it.children.begin(), it.children.end(), nullptr);
  if (instance.parent) {
    LoopCounters& counters = loop_counters_[static_cast<std::size_t>(instance.number)];
    const auto are_open = static_cast<std::uint64_t>(instance.opened - instance.oldest);
    add(it.number == 0 ? counters.instances : counters.iterations);
    if (are_open > counters.most_open.load(std::memory_order_relaxed))
      counters.most_open.store(are_open, std::memory_order_relaxed);
  }
  instance.at(it.number) = &it;
  const bool is_forgotten = is_planted(Planted::enter_not_replayed) && it.number > 0;
  const bool is_steady =
      instance.invariants_pending == 0 && !instance.has_dead_invariant && !is_forgotten;
  std::copy_n((is_steady ? frame.steady : frame.awaited).data(), it.awaited.size(),
              it.awaited.data());
  ++it.unfired;  // nothing ends before this is through
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
  if (!instance.early.empty()) take_early(it);
  fired(it);
  return it;
}

void Partition::enter(Iteration& from, const PartitionPlan::Enter& enter, Value* value) {
  Instance& instance = instance_at(from, enter.frame);
  if (enter.invariant < 0) {
    Iteration& first = *instance.ring[0];
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
    // What is opened meanwhile, for a NextIteration may take it at once, has been given it by
    // `open`.
    for (std::int64_t n = instance.oldest, opened = instance.opened; n < opened; ++n) {
      Iteration& it = *instance.at(n);
      if (value) deliver_all(it, enter.targets, Value(instance.invariants[v]));
      else deliver_all_dead(it, enter.targets);
    }
  }
  // what is delivered may end loops within this one: it is not done before
  if (--instance.enters_pending == 0) advance(instance);
}

void Partition::exit(Iteration& from, const PartitionPlan::Exit& exit, Value* value) {
  if (!value && is_planted(Planted::exit_not_withheld))
    deliver_all_dead(*from.instance->parent, exit.targets);
  if (!value) return;  // sent when the instance ends, if nothing live has left
  Instance& instance = *from.instance;
  char& exited = instance.exited[static_cast<std::size_t>(exit.ordinal)];
  if (is_planted(Planted::early_exit) && exited) return;
  if (exited) {
    const std::string why = fmt::format(
        "two iterations of loop '{}' leave by it; let it take the false side of a Switch on the "
        "loop's LoopCond",
        instance.frame->name);
    fail_at(*instance.record->run, exit.source, Status(Code::failed_precondition, why));
    return;
  }
  exited = 1;
  deliver_all(*instance.parent, exit.targets, std::move(*value));
}

// Whether a loop goes on, to the other partitions that have part of it; null: dead. Mostly it does,
// as in the iteration before. A run that has failed says so by what is dead, so nobody looks
// whether it has.
void Partition::tell_others(Iteration& iteration, const Value* predicate, bool is_true) {
  for (const std::int32_t send : iteration.instance->frame->told) {
    Going& going = going_[static_cast<std::size_t>(send)];
    if (is_true && going.says_true && is_next(going, iteration)) {
      extend(going);
      continue;
    }
    Value copy = predicate ? *predicate : Value();
    this->send(iteration, send, predicate ? &copy : nullptr);
  }
}

void Partition::predicate(Iteration& iteration, Value&& value) {
  if (value.is_inline() && value.dtype() == DType::boolean) {
    const bool goes_on = is_true(value);
    if (tells_others(iteration)) tell_others(iteration, &value, goes_on);
    decide(iteration, goes_on);
    return;
  }
  if (tells_others(iteration)) tell_others(iteration, &value, false);
  const Tensor& t = value.tensor();
  const bool is_one = t.has_value() && t.shape().elements() == 1;  // else the Switches say so
  if (is_one && !t.is_on_host()) {
    ++iteration.unfired;  // until it has come
    ask_device(iteration, nullptr, t);
    return;
  }
  decide(iteration, is_one && t.at(0) != 0);
}

// The predicate has come: the next iteration opens, or waits for the window.
void Partition::decide(Iteration& iteration, bool goes_on) {
  Instance& instance = *iteration.instance;
  iteration.fate = goes_on ? Iteration::Fate::goes_on : Iteration::Fate::ends;
  if (goes_on) {
    if (instance.opened - instance.oldest <
        instance.frame->window + is_planted(Planted::window_off_by_one))
      open(instance);
    else
      instance.must_open = true,
      add(loop_counters_[static_cast<std::size_t>(instance.number)].window_waits);
    for (Iteration::Next& token : iteration.undecided)
      next(iteration, token.loop, token.is_dead ? nullptr : &token.value);
  }
  iteration.undecided.clear();
}

// The token of a NextIteration; null: a dead one. Kept apart only if it has to wait. Where no
// predicate decides, nothing live goes on in a run that has failed: what is constant in the loop
// comes by no firing that would be dead.
void Partition::next(Iteration& from, std::int32_t loop, Value* value) {
  if (!from.instance->frame->has_predicate && from.instance->record->run->is_poisoned())
    value = nullptr;
  const auto kept = [loop, value] {
    return Iteration::Next{loop, value == nullptr, value ? std::move(*value) : Value()};
  };
  Instance& instance = *from.instance;
  if (from.fate == Iteration::Fate::open) {
    if (instance.frame->has_predicate || !value) {
      from.undecided.push_back(kept());
      return;
    }
    decide(from, true);  // the dead ones before it go on with it: who uses them waits for them
  }
  if (from.fate == Iteration::Fate::ends) return;
  std::int64_t n = from.number + 1;
  if (is_planted(Planted::wrong_iteration) && n < instance.opened) n = instance.opened - 1;
  if (n < instance.opened) bring(*instance.at(n), loop, value);
  else instance.waiting.push_back(kept());
}

void Partition::bring(Iteration& iteration, std::int32_t number, Value* value) {
  const PartitionPlan::Loop& loop = mine_.loops[static_cast<std::size_t>(number)];
  if (!value) {
    deliver_all_dead(iteration, loop.targets);
    deliver_all_dead(iteration, loop.index_targets);
    return;
  }
  if (looks_closer_) [[unlikely]]
    observe_next(iteration, number, *value);
  deliver_all(iteration, loop.targets, std::move(*value));
  if (loop.index_targets.first != loop.index_targets.last)
    deliver_all(iteration, loop.index_targets, Tensor::scalar(std::int32_t{1}));
}

// ---- ends

// Something in the instance has ended. What it ends with it may be the last of its own parent, and
// so on: in a loop, for calls may be nested deep.
void Partition::advance(Instance& instance) {
  for (Instance* i = &instance; i;) {
    Iteration* parent = advanced(*i);
    i = parent && --parent->unfired == 0 ? parent->instance : nullptr;
  }
}

// Gives back what is done, oldest first; opens what waited for it; ends what is through: then
// yields the iteration that the instance was in, if any.
Iteration* Partition::advanced(Instance& instance) {
  if (instance.enters_pending > 0 || instance.is_advancing) return nullptr;
  instance.is_advancing = true;
  while (instance.oldest < instance.opened) {
    Iteration*& slot = instance.at(instance.oldest);
    if (slot->unfired > 0) {
      instance.is_advancing = false;
      return nullptr;
    }
    spare_iterations_[static_cast<std::size_t>(instance.number)].push_back(slot);
    slot = nullptr;
    const auto edges = static_cast<std::size_t>(instance.frame->receives);
    std::fill_n(instance.came.begin() +
                    static_cast<std::ptrdiff_t>(instance.known_place(instance.oldest) * edges),
                edges, 0);
    if (instance.parent) count_time(instance);
    ++instance.oldest;
    if (instance.parent && !instance.frame->senders.empty())
      grant(instance, instance.has_large ? Told::all : Told::due);
    if (instance.must_open) {
      instance.must_open = false;
      std::vector<Iteration::Next> waiting = std::move(instance.waiting);
      instance.waiting.clear();
      Iteration& it = open(instance);
      for (Iteration::Next& token : waiting)
        bring(it, token.loop, token.is_dead ? nullptr : &token.value);
      waiting.clear();
      if (instance.waiting.empty()) instance.waiting = std::move(waiting);  // keeps its storage
    }
  }
  instance.is_advancing = false;
  return end(instance);
}

Iteration* Partition::end(Instance& instance) {
  if (!instance.parent) {
    through(*instance.record);
    return nullptr;
  }
  Iteration& parent = *instance.parent;
  const FramePlan& frame = *instance.frame;
  for (std::size_t e = 0; e < frame.exits.size(); ++e)
    if (!instance.exited[e])
      deliver_all_dead(parent, mine_.exits[static_cast<std::size_t>(frame.exits[e])].targets);
  if (!frame.function) parent.children[static_cast<std::size_t>(frame.child_slot)] = &over_;
  else if (instance.caller && !is_planted(Planted::call_not_waited_for)) tell_of(instance);
  Record& record = *instance.record;
  instance.reset();
  spare_instances_[static_cast<std::size_t>(instance.number)].push_back(&instance);
  return frame.function && mine_.has_cut_function ? call_ended(record, instance) : &parent;
}

}  // namespace troupe
