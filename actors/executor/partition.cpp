#include <troupe/actors/executor/partition_tokens.hpp>

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include <troupe/devices/base/planted.hpp>
#include <troupe/devices/scalar/scalar_eval.hpp>
#include <troupe/ops/graph/transfer.hpp>

namespace troupe {
namespace {

std::int64_t now_ns() { return steady_ns(); }

}  // namespace

Partition::Partition(std::shared_ptr<const Plan> plan, std::int32_t index, Granularity granularity,
                     int workers, PartitionDriver& driver)
    : plan_(std::move(plan)), mine_(plan_->partitions[static_cast<std::size_t>(index)]),
      index_(index), granularity_(granularity), driver_(driver),
      stream_(mine_.device->compute_stream()),
      scratch_(static_cast<std::size_t>(std::max(1, mine_.max_outputs))),
      spare_iterations_(mine_.frames.size()), spare_instances_(mine_.frames.size()),
      loop_counters_(mine_.frames.size()),
      hands_over_(granularity == Granularity::automatic && workers > 1 &&
                  mine_.device->is_synchronous()),
      has_loops_(mine_.frames.size() > 1), costs_(static_cast<std::size_t>(mine_.nodes)),
      dead_(costs_.size()), skipped_(costs_.size()), sent_(mine_.sends.size()),
      received_(mine_.receives.size()), going_(mine_.sends.size()), work_(costs_.size()) {
  are_going_.reserve(mine_.sends.size());
}

Partition::~Partition() = default;

// ---- messages

void Partition::handle(PartitionMessage& message) {
  // One look for a few messages, and all that is told of them: a token that waited, what it is
  // recorded as, and the turn that they begin.
  if (heard_ == 0 || recorder_.traces() || ++heard_by_look_ == kMessagesALook) {
    look_at_clock(heard_ = ticks());
    heard_by_look_ = 0;
  }
  if (auto* ended = std::get_if<Ended>(&message)) {
    Firing& f = *ended->firing;
    Iteration& iteration = *f.iteration;
    Record& record = *iteration.instance->record;
    --record.outside;
    add(record.handled);
    ++record.ended;
    if (record.is_abandoned) {
      f.outputs.clear();
      f.status = Status();
      f.run = Ref<Run>();
      spare_.push_back(&f);
      if (record.outside == 0) discard(record);
      return;
    }
    // a predicate has come from the device
    if (!f.node || f.node->kind == PlanNode::Kind::switch_) {
      Value value = std::move(f.outputs[0]);
      spare_.push_back(&f);
      if (f.node) {
        iteration.values[static_cast<std::size_t>(f.node->first_input) + 1] = std::move(value);
        choose(iteration, *f.node);
      } else {
        decide(iteration, value.tensor().at(0) != 0);
        fired(iteration);
      }
      return;
    }
    const PlanNode& node = *f.node;
    if (f.nanoseconds > 0) {
      measure(node, f.nanoseconds, f.outputs, f.put, false);
      record_kernel(iteration, node, f.ran, f.nanoseconds);
    } else if (f.began.count() > 0) {
      record_ended(f);
    }
    const bool is_dead = !f.status.ok();
    if (is_dead) fail(*record.run, &node, in_loop(iteration, f.status));
    f.outputs.resize(static_cast<std::size_t>(node.outputs));
    // The firing's outputs are moved on before it is given back.
    std::vector<Value> outputs = std::move(f.outputs);
    f.status = Status();
    f.run = Ref<Run>();
    if (is_dead) finish_dead(iteration, node);
    else finish(iteration, node, outputs.data());
    outputs.clear();
    f.outputs = std::move(outputs);
    spare_.push_back(&f);
  } else if (auto* granted = std::get_if<Grant>(&message)) {
    accept(*granted);
  } else if (std::holds_alternative<Passed>(message)) {
    --batches_;
  } else if (auto* begin = std::get_if<StartRun>(&message)) {
    start(begin->run);
  } else if (auto* token = std::get_if<Token>(&message)) {
    accept(*token);
  } else if (auto* abandoned = std::get_if<Abandon>(&message)) {
    abandon(abandoned->run);
  } else if (auto* lost = std::get_if<Lost>(&message)) {
    accept(*lost);
  } else if (auto* failed = std::get_if<FailedLater>(&message)) {
    recorder_.add(
        {RecordedEvent::Kind::failure, false, failed->node, failed->at, 0, failed->run, 0, 0});
  } else if (auto* question = std::get_if<Inspect>(&message)) {
    answer(*question);
    heard_ = 0;  // to answer is no part of a turn
  }
}

void Partition::start(const Ref<Run>& run) {
  if (!run->enter(index_)) return;  // a token from another partition was faster than StartRun
  try {
    if (idle_.empty()) {
      Record& fresh = *records_.emplace_back(std::make_unique<Record>());
      fresh.ready.reserve(static_cast<std::size_t>(mine_.nodes));
      fresh.heavy.reserve(static_cast<std::size_t>(mine_.nodes));
      idle_.push_back(&fresh);
    }
    active_.reserve(active_.size() + 1);
  } catch (...) {
    give_up(run);
    run->leave();
    return;
  }
  Record& r = *idle_.back();
  idle_.pop_back();
  active_.push_back(&r);
  r.is_active = true;
  r.is_abandoned = false;
  add(r.handled);
  r.run = run;
  r.fired = r.sent = r.received = 0;
  failed_.store(-1, std::memory_order_relaxed);
  add(loop_counters_[0].instances);
  if (!mine_.device->is_synchronous()) r.fault = std::make_shared<Fault>();
  // The outside of all loops: an instance that nobody entered.
  Instance*& root = r.root;
  if (!root) {
    root = instances_.emplace_back(std::make_unique<Instance>()).get();
    root->frame = &mine_.frames[0];
    root->ring.resize(1);
  }
  root->came.assign(static_cast<std::size_t>(root->frame->receives), 0);
  root->record = &r;
  r.elsewhere.instance = root;
  r.elsewhere.unfired = 1;
  if (mine_.has_cut_function) r.calls.resize(mine_.frames.size());
  r.came_over.assign(static_cast<std::size_t>(mine_.overs_in), 0);
  r.is_through = false;
  root->oldest = root->opened = 0;
  root->enters_pending = 1;  // until the feeds are delivered: nothing ends meanwhile
  Iteration& outside = open(*root);
  for (const PartitionPlan::Feed& feed : mine_.feeds) {
    stream_->attribute(r.fault, -1);
    const Tensor& fed = r.run->feeds()[static_cast<std::size_t>(feed.index)];
    Value value = fed;
    bring_or_fail(*r.run, value, plan_->program.feeds[static_cast<std::size_t>(feed.index)].node);
    for (std::int32_t t = feed.targets.first; t < feed.targets.last; ++t) {
      const Target& target = mine_.targets[static_cast<std::size_t>(t)];
      deliver(outside, target, target.node == Target::kFetch ? Value(fed) : Value(value));
    }
  }
  root->enters_pending = 0;
  advance(*root);
}

// ---- firing

bool Partition::turn(int budget) {
  // Runs in flight take turns of a hundred firings; within a run the newest enabled node goes
  // first, but for one a turn (give_way).
  constexpr int kShare = 100;
  std::size_t without_work = 0;
  if (batches_ >= kBatches) {  // goes on when the stream has passed
    break_turn();
    return false;
  }
  std::uint64_t began = std::exchange(heard_, 0);
  if (began == 0) look_at_clock(began = ticks());
  looks_closer_ = observes_ > 0 || recorder_.traces();
  if (looks_closer_) last_tick_ = ticks();
  is_long_ = false;
  heavy_ns_ = 0;
  const int allowed = budget;
  int until_look = kFiringsALook;
  std::uint64_t run_number = 0;
  while (budget > 0 && !is_long_ && without_work < active_.size()) {
    if (next_active_ >= active_.size()) next_active_ = 0;
    Record& record = *active_[next_active_];
    run_number = record.run->number();
    const int share = share_ = left_ = active_.size() > 1 ? std::min(budget, kShare) : budget;
    // counted here, and told to left_: read back from memory, it costs a tiny loop 13 ns an
    // iteration
    int left = share;
    if (record.has_ready()) add(record.handled);
    try {
      while (left > 0 && record.is_active) {
        if (record.ready.empty() && record.first.empty()) {
          dispatch_others(record);
          if (record.ready.empty()) break;
        }
        Stack<Record::Ready>& from = record.first.empty() ? record.ready : record.first;
        Record::Ready next = from.back();
        from.pop_back();
        if (looks_closer_) [[unlikely]] {
          if (is_long_) {
            from.push_back(next);
            break;
          }
          fire_closely(*next.iteration, *next.node);
        } else {
          fire(*next.iteration, *next.node);
        }
        left_ = --left;
        if (--until_look == 0) [[unlikely]]
          look_at_clock(ticks()), until_look = kFiringsALook;
      }
    } catch (...) {
      if (!record.is_active) {
        share_ = 0;
        throw;
      }
      give_up(record.run);
      --left;
    }
    const int used = share - left;
    share_ = 0;
    if (left <= 0 && record.is_active) give_way(record);
    budget -= used;
    record.fired += static_cast<std::uint64_t>(used);
    without_work = used == 0 ? without_work + 1 : 0;
    // else it left `active_`, and the next stands in its place
    if (record.is_active) ++next_active_;
  }
  flush();  // before the books of the turn, for which nobody elsewhere waits
  if (budget < allowed) {
    const std::uint64_t length = ticks() - began;
    turn_ticks_ += length;
    parked_ = began + length;
    recorder_.add_turn(began, length, run_number, allowed - budget);
    if (recorder_.traces()) {
      recorder_.turn_took(length, static_cast<std::uint64_t>(allowed - budget));
      recorder_.expire(driver_.time_at(parked_));
    }
  }
  const bool has_more =
      std::any_of(active_.begin(), active_.end(), [](const Record* r) { return r->has_ready(); });
  if (has_more || active_.empty()) parked_ = 0;
  return has_more;
}

// Counters, predicates, scalar losses: the program on the elements themselves, with no context and
// no clock around it. False if an input has several, or is on a stream device.
inline bool Partition::run_scalars(Iteration& iteration, const PlanNode& node) {
  if (node.held) take_held(iteration, node);
  const std::span inputs(iteration.values.data() + node.first_input,
                         static_cast<std::size_t>(node.inputs));
  Value result;
  std::size_t scalars = 0;
  while (scalars < inputs.size() && inputs[scalars].is_inline()) ++scalars;
  if (scalars == inputs.size()) evaluate_scalars(*node.scalars, inputs, result);
  else if (iteration.instance->record->fault || !evaluate_elements(*node.scalars, inputs, result))
    return false;
  finish(iteration, node, &result);
  return true;
}

void Partition::fire(Iteration& iteration, const PlanNode& node) {
  Record& record = *iteration.instance->record;
  if (record.fault && record.fault->is_set() && !record.run->is_poisoned()) {
    record_failure(*record.run, static_cast<std::int32_t>(record.fault->origin()));
    fail_at(*record.run, static_cast<std::int32_t>(record.fault->origin()), record.fault->status());
  }
  if ((iteration.awaited[static_cast<std::size_t>(node.place)] & Iteration::kDead) ||
      record.run->is_poisoned()) {
    if (node.kind == PlanNode::Kind::trigger && !record.run->is_poisoned()) {
      scratch_[0] = Tensor::scalar(true);
      finish(iteration, node, scratch_.data());
    } else if (node.kind == PlanNode::Kind::return_) {
      iteration.values[static_cast<std::size_t>(node.first_input)].reset();
      give_back(iteration, node, nullptr);
    } else {
      finish_dead(iteration, node);
    }
    return;
  }
  switch (node.kind) {
    case PlanNode::Kind::kernel:
      if (node.scalars && granularity_ != Granularity::op && run_scalars(iteration, node)) return;
      break;
    case PlanNode::Kind::switch_:
      if (node.held) take_held(iteration, node);
      choose(iteration, node);
      return;
    case PlanNode::Kind::call: call(iteration, node); return;
    case PlanNode::Kind::return_:
      take_held(iteration, node);
      scratch_[0] = std::move(iteration.values[static_cast<std::size_t>(node.first_input)]);
      give_back(iteration, node, scratch_.data());
      return;
    case PlanNode::Kind::trigger:
      scratch_[0] = Tensor::scalar(true);
      finish(iteration, node, scratch_.data());
      return;
    case PlanNode::Kind::identity:
    case PlanNode::Kind::merge:  // of dead inputs: handled above
      if (node.held) take_held(iteration, node);
      scratch_[0] = std::move(iteration.values[static_cast<std::size_t>(node.first_input)]);
      finish(iteration, node, scratch_.data());
      return;
  }
  // On a stream device a kernel only enqueues: always from here, so that the stream has one user.
  if (granularity_ == Granularity::op && mine_.device->is_synchronous()) {
    hand_over(iteration, node);
    return;
  }
  if (run_kernel(iteration, node)) finish(iteration, node, scratch_.data());
}

KernelContext Partition::context(Iteration& iteration, const PlanNode& node, Value* outputs) {
  KernelContext c(
      {iteration.values.data() + node.first_input, static_cast<std::size_t>(node.inputs)},
      {outputs, static_cast<std::size_t>(node.outputs)}, *mine_.device, *stream_,
      iteration.instance->record->run->info());
  c.set_tag(iteration.tag);
  return c;
}

// A Switch, whose inputs are all there: its data to the side that the predicate names, dead tokens
// to the others.
void Partition::choose(Iteration& iteration, const PlanNode& node) {
  Value& predicate = iteration.values[static_cast<std::size_t>(node.first_input) + 1];
  std::int64_t side = 0;
  if (predicate.is_inline() && predicate.dtype() == DType::boolean) {
    bool b;
    std::memcpy(&b, predicate.scalar_bits(), sizeof b);
    side = b;
  } else if (const Tensor& t = predicate.tensor(); t.shape().elements() != 1) {
    fail(*iteration.instance->record->run, &node,
         in_loop(iteration,
                 Status(Code::invalid_argument,
                        fmt::format("its predicate must be a scalar, not {}", t.shape().text()))));
    finish_dead(iteration, node);
    return;
  } else if (!t.is_on_host()) {
    ask_device(iteration, &node, t);
    return;
  } else {
    side = static_cast<std::int64_t>(t.at(0));
  }
  Value& data = iteration.values[static_cast<std::size_t>(node.first_input)];
  predicate.reset();
  if (side < 0 || side >= node.outputs) side = node.outputs - 1;
  const std::int32_t* ranges = mine_.output_targets.data() + node.first_output;
  if (is_planted(Planted::early_exit) && side == 1 && ranges[0] < ranges[1] &&
      mine_.targets[static_cast<std::size_t>(ranges[0])].node == Target::kExit)
    deliver_all(iteration, {ranges[0], ranges[1]}, Value(data));
  for (std::int32_t o = 0; o < node.outputs; ++o)
    if (o != side && ranges[2 * o] != ranges[2 * o + 1])
      deliver_all_dead(iteration, {ranges[2 * o], ranges[2 * o + 1]});
  deliver_all(iteration, {ranges[2 * side], ranges[2 * side + 1]}, std::move(data));
  data.reset();
  if (ranges[2 * node.outputs] != ranges[2 * node.outputs + 1])
    deliver_controls(iteration, {ranges[2 * node.outputs], ranges[2 * node.outputs + 1]});
  fired(iteration);
}

// A predicate is in a device's memory: it comes back as the end of a firing, for no thread waits
// for a stream. `node`: the Switch that asks; null: the loop.
void Partition::ask_device(Iteration& iteration, const PlanNode* node, const Tensor& predicate) {
  Firing& firing = spare_firing();
  firing.iteration = &iteration;
  firing.node = node;
  Tensor host = land(predicate);
  ++iteration.instance->record->outside;
  stream_->record()->then([this, &firing, host, source = predicate,
                           run = iteration.instance->record->run](const Status&) {
    firing.outputs.resize(1);
    firing.outputs[0] = host.reshaped(Shape{});
    count_end(firing);
    driver_.post_self(Ended{&firing});
  });
}

// What comes from outside of the partition. A run that fails over it skips its kernels: the value
// stays where it is.
void Partition::bring_or_fail(Run& run, Value& value, std::int32_t source) {
  const bool is_copied = !mine_.device->is_synchronous();
  const std::uint64_t began = is_copied ? ticks() : 0;
  try {
    bring_token(value);
    if (is_copied) record_copy(run, source, began);
  } catch (...) {
    record_failure(run, source);
    fail_at(run, source, Status::from_current_exception());
  }
}

void Partition::bring_value(Value& value) {
  if (value.kind() == Value::Kind::tensor) bring_to_device(value.tensor(), *mine_.device, *stream_);
}

// False if the kernel deferred its end or failed.
bool Partition::run_kernel(Iteration& iteration, const PlanNode& node) {
  Record& record = *iteration.instance->record;
  flush();
  take_held(iteration, node);
  if (spare_.empty()) spare_.push_back(firings_.emplace_back(std::make_unique<Firing>()).get());
  Firing* ticket = spare_.back();  // taken only if the kernel defers
  ticket->partition = this;
  ticket->iteration = &iteration;
  ticket->node = &node;
  KernelContext c = context(iteration, node, scratch_.data());
  c.set_sink(this, ticket);
  if (record.fault) stream_->attribute(record.fault, node.source);
  Cost& cost = costs_[static_cast<std::size_t>(node.index)];
  const bool was_heavy = cost.nanoseconds.load(std::memory_order_relaxed) >= kHeavy;
  constexpr std::int64_t kNoticed = 1000;  // ns, of which a look at the clock takes a hundredth
  const bool is_noticed =
      has_loops_ && cost.nanoseconds.load(std::memory_order_relaxed) >= kNoticed;
  bool timed = was_heavy || cost.samples < 3 || (++tick_ % kSampled) == 0;
  // its kernel moves its inputs
  const std::uint64_t put = timed && node.makes_list ? put_into_lists(iteration, node) : 0;
  std::int64_t start = timed ? now_ns() : 0;
  // A deferring kernel may be completed before `run` returns: the ticket is spoken for first.
  spare_.pop_back();
  ++record.outside;
  running_run_.store(record.run->info().id, std::memory_order_relaxed);
  running_.store(&node, std::memory_order_relaxed);
  looked_ = 0;
  try {
    node.kernel->run(c);
    // What a kernel made of host scalars (a reshaped counter) is on the host yet.
    if (record.fault && !c.was_deferred())
      for (Value& v : c.all_outputs()) bring_value(v);
  } catch (...) {
    running_.store(nullptr, std::memory_order_relaxed);
    ticket->began = std::chrono::nanoseconds(now_ns());
    Status status = Status::from_current_exception();
    fail(*record.run, &node, in_loop(iteration, status));
    if (!c.was_deferred()) {
      --record.outside;
      spare_.push_back(ticket);
      for (std::int32_t o = 0; o < node.outputs; ++o) scratch_[static_cast<std::size_t>(o)].reset();
      finish_dead(iteration, node);
    }
    return false;
  }
  if (record.fault && ++in_batch_ == kBatch) {
    in_batch_ = 0;
    ++batches_;
    stream_->record()->then(
        [this, run = record.run](const Status&) { driver_.post_self(Passed{}); });
  }
  running_.store(nullptr, std::memory_order_relaxed);
  if (is_noticed || timed) look_at_clock(ticks());
  if (c.was_deferred()) {
    // its end, which others may have posted, is handled in a later turn
    ticket->began = std::chrono::nanoseconds(now_ns());
    return false;
  }
  --record.outside;
  spare_.push_back(ticket);
  if (timed) {
    const std::int64_t took = now_ns() - start;
    measure(node, took, {scratch_.data(), static_cast<std::size_t>(node.outputs)}, put, true);
    if (took >= kHeavy) {
      if (!is_drawn_) record_kernel(iteration, node, start, took);
      if ((heavy_ns_ += took) >= kLongTurn && !driver_.is_stepped())
        is_long_ = looks_closer_ = true;
    }
  }
  return true;
}

void Partition::finish(Iteration& iteration, const PlanNode& node, Value* outputs) {
  empty_inputs(iteration, node);
  if (node.has_only) {
    deliver(iteration, node.only, std::move(outputs[0]));
    fired(iteration);
    return;
  }
  const std::int32_t* ranges = mine_.output_targets.data() + node.first_output;
  for (std::int32_t o = 0; o < node.outputs; ++o)
    deliver_all(iteration, {ranges[2 * o], ranges[2 * o + 1]}, std::move(outputs[o]));
  if (ranges[2 * node.outputs] != ranges[2 * node.outputs + 1])
    deliver_controls(iteration, {ranges[2 * node.outputs], ranges[2 * node.outputs + 1]});
  fired(iteration);
}

void Partition::finish_dead(Iteration& iteration, const PlanNode& node) {
  ++dead_[static_cast<std::size_t>(node.index)];
  empty_inputs(iteration, node);
  const std::int32_t* ranges = mine_.output_targets.data() + node.first_output;
  for (std::int32_t o = 0; o <= node.outputs; ++o)
    if (ranges[2 * o] != ranges[2 * o + 1])
      deliver_all_dead(iteration, {ranges[2 * o], ranges[2 * o + 1]});
  fired(iteration);
}

namespace {

// Does what a kernel took tell what it will take? Not where a run decides how large its operands
// are, or how long are lists that it goes through side by side, nor where it writes text that
// nobody may be reading.
bool tells_its_work(const Graph& graph, std::int32_t id) {
  const Node& node = graph.node(id);
  if (node.state >= 0 && graph.states()[static_cast<std::size_t>(node.state)].is_of_host())
    return false;
  const auto lists = std::count_if(node.inputs.begin(), node.inputs.end(),
                                   [&](const Edge& e) { return graph.spec(e).is_list(); });
  if (lists > 1) return false;  // of one they take elements, or what they yield says how many
  const auto is_known = [](const ValueSpec& spec) { return spec.shape.is_known(); };
  return std::all_of(node.outputs.begin(), node.outputs.end(), is_known) &&
         std::all_of(node.inputs.begin(), node.inputs.end(),
                     [&](const Edge& e) { return is_known(graph.spec(e)); });
}

}  // namespace

bool Partition::is_light() const {
  constexpr std::int32_t kLooked = 500;
  if (mine_.nodes > kLooked || granularity_ == Granularity::op || !mine_.device->is_synchronous())
    return false;
  for (const FramePlan& f : mine_.frames)
    for (const PlanNode& n : f.nodes) {
      const std::int64_t ns = cost_ns(n.index);
      const bool is_short = driver_.is_stepped() || (ns < kHeavy && (ns != 0 || n.scalars));
      if (n.kernel && (!is_short || !tells_its_work(plan_->program.graph, n.source))) return false;
    }
  return true;
}

void Partition::end(Record& record) {
  Ref<Run> run = std::move(record.run);
  record.is_active = false;
  active_.erase(std::find(active_.begin(), active_.end(), &record));
  idle_.push_back(&record);
  if (mine_.has_cut_function) forget_calls(record);
  flush();  // who has left a run says nothing more of it
  // in the turn under way, which adds them up when it is over
  const std::uint64_t fired_now = share_ > 0 ? static_cast<std::uint64_t>(share_ - left_) + 1 : 0;
  const RunTotals done{record.fired + fired_now, record.sent, record.received};
  if (mine_.device->is_synchronous()) {
    run->has_done(index_, done);
    run->leave();
    return;
  }
  // What ran later may have failed later: by then the recorder is other runs', and is told in a
  // turn.
  stream_->record()->then([run, this, done, fault = record.fault,
                           landings = std::move(record.landings)](const Status& status) {
    const auto origin = fault->is_set() ? static_cast<std::int32_t>(fault->origin()) : -1;
    if ((fault->is_set() || !status.ok()) && !run->is_poisoned())
      driver_.post_self(FailedLater{run->number(), origin, ticks()});
    if (fault->is_set()) fail_at(*run, origin, fault->status());
    else if (!status.ok()) run->fail(status);
    for (const Landing& l : landings) run->set_fetch(l.index, l.host.reshaped(l.shape));
    run->has_done(index_, done);
    run->leave();
  });
  record.landings.clear();
}

// `source`: a node of the program; -1: none in particular.
void Partition::fail_at(Run& run, std::int32_t source, const Status& status) {
  failed_.store(source, std::memory_order_relaxed);
  std::string where = source < 0 ? mine_.device->name() : plan_->program.graph.describe(source);
  if (plan_->is_shared())
    where = fmt::format("node '{}': {}", plan_->nodes[static_cast<std::size_t>(mine_.node)], where);
  run.fail(Status(status.code(), fmt::format("{}: {}", where, status.message())));
}

// The tag is part of where an error is.
Status Partition::in_loop(const Iteration& iteration, Status status) {
  if (!iteration.instance->parent) return status;
  return Status(status.code(), fmt::format("in {}: {}", tag_of(iteration), status.message()));
}

void Partition::fail(Run& run, const PlanNode* node, const Status& status) {
  if (node) record_failure(run, node->source);
  fail_at(run, node ? node->source : -1, status);
}

}  // namespace troupe
