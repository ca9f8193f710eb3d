#include <troupe/actors/partition.hpp>

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include <troupe/devices/list.hpp>
#include <troupe/devices/planted.hpp>
#include <troupe/devices/scalar_eval.hpp>
#include <troupe/ops/transfer.hpp>

namespace troupe {
namespace {

// The tensors of a value that are in a device's memory: itself, or what a list holds, in order.
void each_on_device(const Value& value, const std::function<void(const Tensor&)>& f) {
  if (value.is_list()) {
    for (std::int64_t i = 0; i < value.list().length(); ++i) each_on_device(value.list().read(i), f);
  } else if (value.kind() == Value::Kind::tensor && !value.tensor().is_on_host()) {
    f(value.tensor());
  }
}

// The same value with f of each of its tensors in their places.
Value with_tensors(const Value& value, const std::function<Tensor(const Tensor&)>& f) {
  if (value.kind() == Value::Kind::tensor) return f(value.tensor());
  if (!value.is_list()) return value;
  const List& from = value.list();
  List to(from.dtype(), from.element_shape(), from.depth());
  to.grow(from.length());
  for (std::int64_t i = 0; i < from.length(); ++i)
    if (from.read(i).has_value()) to.put(i, with_tensors(from.read(i), f));
  return to;
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Partition::Partition(std::shared_ptr<const Plan> plan, std::int32_t index, Granularity granularity, int workers,
                     PartitionDriver& driver)
    : plan_(std::move(plan)), mine_(plan_->partitions[static_cast<std::size_t>(index)]), index_(index), granularity_(granularity),
      driver_(driver), stream_(mine_.device->compute_stream()),
      scratch_(static_cast<std::size_t>(mine_.max_outputs)), spare_iterations_(mine_.frames.size()),
      spare_instances_(mine_.frames.size()), loop_counters_(mine_.frames.size()),
      hands_over_(granularity == Granularity::automatic && workers > 1 && mine_.device->is_synchronous()), costs_(static_cast<std::size_t>(mine_.nodes)) {}

Partition::~Partition() = default;

// ---- messages

void Partition::receive(PartitionMessage& message) {
  if (auto* ended = std::get_if<Ended>(&message)) {
    Firing& f = *ended->firing;
    Iteration& iteration = *f.iteration;
    Record& record = *iteration.instance->record;
    --record.outside;
    if (!f.node || f.node->kind == PlanNode::Kind::switch_) {  // a predicate has come from the device
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
    if (f.nanoseconds > 0) measure(node, f.nanoseconds);
    const bool is_dead = !f.status.ok();
    if (is_dead) fail(*record.run, &node, f.status);
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
    start(std::move(begin->run));
  } else if (auto* token = std::get_if<Token>(&message)) {
    accept(*token);
  }
}

void Partition::start(Ref<Run> run) {
  if (!run->enter(index_)) return;  // a token from another partition was faster than StartRun
  if (idle_.empty()) {
    Record& fresh = *records_.emplace_back(std::make_unique<Record>());
    fresh.ready.reserve(static_cast<std::size_t>(mine_.nodes));
    fresh.heavy.reserve(static_cast<std::size_t>(mine_.nodes));
    idle_.push_back(&fresh);
  }
  Record& r = *idle_.back();
  idle_.pop_back();
  active_.push_back(&r);
  r.is_active = true;
  r.run = std::move(run);
  if (!mine_.device->is_synchronous()) r.fault = std::make_shared<Fault>();
  // The outside of all loops: an instance that nobody entered.
  Instance*& root = r.root;
  if (!root) {
    root = instances_.emplace_back(std::make_unique<Instance>()).get();
    root->frame = &mine_.frames[0];
    root->ring.resize(1);
  }
  root->record = &r;
  root->oldest = root->opened = 0;
  root->enters_pending = 1;  // until the feeds are delivered: nothing ends meanwhile
  Iteration& outside = open(*root);
  for (const PartitionPlan::Feed& feed : mine_.feeds) {
    stream_->attribute(r.fault, -1);
    const Tensor& fed = r.run->feeds()[static_cast<std::size_t>(feed.index)];
    Value value = fed;
    bring_to_device(value.tensor(), *mine_.device, *stream_);
    for (std::int32_t t = feed.targets.first; t < feed.targets.last; ++t) {
      const Target& target = mine_.targets[static_cast<std::size_t>(t)];
      deliver(outside, target, target.node == Target::kFetch ? Value(fed) : Value(value));
    }
  }
  root->enters_pending = 0;
  advance(*root);
}

// A partition cannot drain before all its tokens have come, so a token's run is either active here
// or has not started here yet.
void Partition::accept(Token& token) {
  const TargetRange to = mine_.receives[static_cast<std::size_t>(token.receive)].targets;
  const bool is_predicate = to.last - to.first == 1 && mine_.targets[static_cast<std::size_t>(to.first)].node == Target::kPredicate;
  if (!is_predicate) bring_token(token.value);
  start(token.run);
  for (Record* r : active_)
    if (r->run.get() == token.run.get()) {
      accept_at(*r->root, token);
      return;
    }
}

// Takes a token from an instance of a frame around its own, or of its own, to where it belongs.
void Partition::accept_at(Instance& instance, Token& token) {
  const PartitionPlan::Receive& receive = mine_.receives[static_cast<std::size_t>(token.receive)];
  const std::int32_t depth = instance.frame->depth;
  const std::int64_t n = depth == 0 ? 0 : token.path.number[depth - 1];
  if (n >= instance.opened) {
    instance.early.push_back(std::move(token));
    return;
  }
  Iteration& iteration = *instance.ring[static_cast<std::size_t>(n) % instance.ring.size()];
  if (instance.number == receive.frame) {
    if (token.is_dead) deliver_all_dead(iteration, receive.targets);
    else deliver_all(iteration, receive.targets, std::move(token.value));
    fired(iteration);
    return;
  }
  std::int32_t next = receive.frame;  // the frame that comes after this one on the way
  while (mine_.frames[static_cast<std::size_t>(next)].parent != instance.number) next = mine_.frames[static_cast<std::size_t>(next)].parent;
  accept_at(instance_at(iteration, next), token);
}

// ---- firing

bool Partition::turn(int budget) {
  // Runs in flight take turns of a hundred firings; within a run the newest enabled node goes first.
  constexpr int kShare = 100;
  std::size_t without_work = 0;
  if (batches_ >= kBatches) return false;  // goes on when the stream has passed
  while (budget > 0 && without_work < active_.size()) {
    if (next_active_ >= active_.size()) next_active_ = 0;
    Record& record = *active_[next_active_];
    int share = active_.size() > 1 ? std::min(budget, kShare) : budget;
    int left = share;
    while (left > 0 && record.is_active) {
      if (record.ready.empty()) {
        dispatch_heavy(record);
        if (record.ready.empty()) break;
      }
      Record::Ready next = record.ready.back();
      record.ready.pop_back();
      fire(*next.iteration, *next.node);
      --left;
    }
    budget -= share - left;
    without_work = left == share ? without_work + 1 : 0;
    if (record.is_active) ++next_active_;  // else it left `active_`, and the next stands in its place
  }
  for (Record* r : active_)
    if (!r->ready.empty() || !r->heavy.empty()) return true;
  return false;
}

// Heavy nodes wait until nothing light is ready, so that light ones can enable more of them. One
// alone runs inline; several, or one beside kernels under way elsewhere, go to the workers, so that
// this partition stays free to react to the first that ends.
void Partition::dispatch_heavy(Record& record) {
  if (record.heavy.empty()) return;
  if (record.heavy.size() == 1 && record.outside == 0) {
    record.ready.push_back(record.heavy.back());
    record.heavy.pop_back();
    return;
  }
  while (!record.heavy.empty()) {
    Record::Ready next = record.heavy.back();
    record.heavy.pop_back();
    bool is_dead = next.iteration->awaited[static_cast<std::size_t>(next.node - next.iteration->instance->frame->nodes.data())] & Iteration::kDead;
    if (is_dead || record.run->is_poisoned()) record.ready.push_back(next);
    else hand_over(*next.iteration, *next.node);
  }
}

void Partition::hand_over(Iteration& iteration, const PlanNode& node) {
  Record& record = *iteration.instance->record;
  take_held(iteration, node);
  Firing& firing = take_firing(iteration, node);
  firing.run = record.run;
  ++record.outside;
  driver_.hand_over(firing);
}

void Partition::fire(Iteration& iteration, const PlanNode& node) {
  const FramePlan& frame = *iteration.instance->frame;
  const auto place = static_cast<std::size_t>(&node - frame.nodes.data());
  Record& record = *iteration.instance->record;
  if (record.fault && record.fault->is_set() && !record.run->is_poisoned())
    fail_at(*record.run, static_cast<std::int32_t>(record.fault->origin()), record.fault->status());
  if ((iteration.awaited[place] & Iteration::kDead) || record.run->is_poisoned()) {
    if (node.kind == PlanNode::Kind::trigger && !record.run->is_poisoned()) {
      scratch_[0] = Tensor::scalar(true);
      finish(iteration, node, scratch_.data());
    } else {
      finish_dead(iteration, node);
    }
    return;
  }
  switch (node.kind) {
    case PlanNode::Kind::kernel:
      if (node.scalars && granularity_ != Granularity::op && run_scalars(iteration, node)) return;
      break;
    case PlanNode::Kind::switch_: choose(iteration, node); return;
    case PlanNode::Kind::trigger:
      scratch_[0] = Tensor::scalar(true);
      finish(iteration, node, scratch_.data());
      return;
    case PlanNode::Kind::identity:
    case PlanNode::Kind::merge:  // of dead inputs: handled above
      take_held(iteration, node);
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

void Partition::take_held(Iteration& iteration, const PlanNode& node) {
  const Held* held = mine_.held.data() + node.first_held;
  for (const Held* last = held + node.held; held != last; ++held)
    iteration.values[static_cast<std::size_t>(held->slot)].share(
        held->constant >= 0 ? mine_.constants[static_cast<std::size_t>(held->constant)]
                            : iteration.instance->invariants[static_cast<std::size_t>(held->invariant)]);
}

// Counters, predicates, scalar losses: the program on the scalars themselves, with no context and no
// clock around it. False if an input is no inline scalar.
bool Partition::run_scalars(Iteration& iteration, const PlanNode& node) {
  take_held(iteration, node);
  Value* inputs = iteration.values.data() + node.first_input;
  for (std::int32_t i = 0; i < node.inputs; ++i)
    if (!inputs[i].is_inline()) return false;
  Value result;
  evaluate_scalars(*node.scalars, {inputs, static_cast<std::size_t>(node.inputs)}, result);
  finish(iteration, node, &result);
  return true;
}

KernelContext Partition::context(Iteration& iteration, const PlanNode& node, Value* outputs) {
  KernelContext c({iteration.values.data() + node.first_input, static_cast<std::size_t>(node.inputs)},
                  {outputs, static_cast<std::size_t>(node.outputs)}, *mine_.device, *stream_, iteration.instance->record->run->info());
  c.set_tag(iteration.tag);
  return c;
}

// A Switch: its data to the side that the predicate names, dead tokens to the others.
void Partition::choose(Iteration& iteration, const PlanNode& node) {
  take_held(iteration, node);
  Value& predicate = iteration.values[static_cast<std::size_t>(node.first_input) + 1];
  std::int64_t side = 0;
  if (predicate.is_inline() && predicate.dtype() == DType::boolean) {
    bool b;
    std::memcpy(&b, predicate.scalar_bits(), sizeof b);
    side = b;
  } else if (const Tensor& t = predicate.tensor(); t.shape().elements() != 1) {
    fail(*iteration.instance->record->run, &node, Status(Code::invalid_argument, fmt::format("its predicate must be a scalar, not {}", t.shape().text())));
    finish_dead(iteration, node);
    return;
  } else if (!t.is_on_host()) {
    ask_device(iteration, &node, t);
    return;
  } else {
    side = static_cast<std::int64_t>(t.at(0));
  }
  Value data = std::move(iteration.values[static_cast<std::size_t>(node.first_input)]);
  predicate.reset();
  if (side < 0 || side >= node.outputs) side = node.outputs - 1;
  const std::int32_t* ranges = mine_.output_targets.data() + node.first_output;
  if (is_planted(Planted::early_exit) && side == 1 && ranges[0] < ranges[1] && mine_.targets[static_cast<std::size_t>(ranges[0])].node == Target::kExit)
    deliver_all(iteration, {ranges[0], ranges[1]}, Value(data));
  for (std::int32_t o = 0; o < node.outputs; ++o)
    if (o != side) deliver_all_dead(iteration, {ranges[2 * o], ranges[2 * o + 1]});
  deliver_all(iteration, {ranges[2 * side], ranges[2 * side + 1]}, std::move(data));
  deliver_controls(iteration, {ranges[2 * node.outputs], ranges[2 * node.outputs + 1]});
  fired(iteration);
}

// A predicate is in a device's memory: it comes back as the end of a firing, for no thread waits for a
// stream. `node`: the Switch that asks; null: the loop.
void Partition::ask_device(Iteration& iteration, const PlanNode* node, const Tensor& predicate) {
  Firing& firing = spare_firing();
  firing.iteration = &iteration;
  firing.node = node;
  ++iteration.instance->record->outside;
  Tensor host = land(predicate);
  stream_->record()->then([this, &firing, host, source = predicate, run = iteration.instance->record->run](const Status&) {
    firing.outputs.resize(1);
    firing.outputs[0] = host.reshaped(Shape{});
    driver_.post_self(Ended{&firing});
  });
}

void Partition::bring_value(Value& value) {
  if (value.kind() == Value::Kind::tensor) bring_to_device(value.tensor(), *mine_.device, *stream_);
}

// What comes from another partition: a list with all that it holds.
void Partition::bring_token(Value& value) {
  if (!value.is_list()) bring_value(value);
  else if (!mine_.device->is_synchronous())
    value = with_tensors(value, [&](Tensor t) {
      bring_to_device(t, *mine_.device, *stream_);
      return t;
    });
}

// False if the kernel deferred its end or failed.
bool Partition::run_kernel(Iteration& iteration, const PlanNode& node) {
  Record& record = *iteration.instance->record;
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
  bool timed = cost.samples < 3 || (++tick_ % kSampled) == 0;
  std::int64_t start = timed ? now_ns() : 0;
  // A deferring kernel may be completed before `run` returns: the ticket is spoken for first.
  spare_.pop_back();
  ++record.outside;
  try {
    node.kernel->run(c);
    // What a kernel made of host scalars (a reshaped counter) is on the host yet.
    if (record.fault && !c.was_deferred())
      for (Value& v : c.all_outputs()) bring_value(v);
  } catch (...) {
    Status status = Status::from_current_exception();
    fail(*record.run, &node, status);
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
    stream_->record()->then([this, run = record.run](const Status&) { driver_.post_self(Passed{}); });
  }
  if (c.was_deferred()) return false;
  --record.outside;
  spare_.push_back(ticket);
  if (timed) measure(node, now_ns() - start);
  return true;
}

void Partition::measure(const PlanNode& node, std::int64_t nanoseconds) {
  Cost& cost = costs_[static_cast<std::size_t>(node.index)];
  // The first firings warm caches up: their least counts; later samples move the estimate slowly.
  const std::int64_t known = cost.nanoseconds.load(std::memory_order_relaxed);
  const std::int64_t now = cost.samples == 0 ? nanoseconds : cost.samples < 3 ? std::min(known, nanoseconds) : known + (nanoseconds - known) / 4;
  cost.nanoseconds.store(now, std::memory_order_relaxed);
  if (cost.samples < 3) ++cost.samples;
}

void Partition::finish(Iteration& iteration, const PlanNode& node, Value* outputs) {
  for (std::int32_t i = 0; i < node.inputs; ++i) iteration.values[static_cast<std::size_t>(node.first_input + i)].reset();
  if (node.has_only) {
    deliver(iteration, node.only, std::move(outputs[0]));
    fired(iteration);
    return;
  }
  const std::int32_t* ranges = mine_.output_targets.data() + node.first_output;
  for (std::int32_t o = 0; o < node.outputs; ++o) deliver_all(iteration, {ranges[2 * o], ranges[2 * o + 1]}, std::move(outputs[o]));
  deliver_controls(iteration, {ranges[2 * node.outputs], ranges[2 * node.outputs + 1]});
  fired(iteration);
}

void Partition::finish_dead(Iteration& iteration, const PlanNode& node) {
  for (std::int32_t i = 0; i < node.inputs; ++i) iteration.values[static_cast<std::size_t>(node.first_input + i)].reset();
  const std::int32_t* ranges = mine_.output_targets.data() + node.first_output;
  for (std::int32_t o = 0; o <= node.outputs; ++o) deliver_all_dead(iteration, {ranges[2 * o], ranges[2 * o + 1]});
  fired(iteration);
}

// One thing less that the iteration waits for.
void Partition::fired(Iteration& iteration) {
  if (--iteration.unfired == 0) advance(*iteration.instance);
}

// ---- tokens

void Partition::deliver_all(Iteration& iteration, TargetRange range, Value&& value) {
  if (range.first == range.last) {
    value.reset();
    return;
  }
  const Target* t = mine_.targets.data() + range.first;
  for (const Target* last = mine_.targets.data() + range.last - 1; t != last; ++t) deliver(iteration, *t, Value(value));
  deliver(iteration, *t, std::move(value));
}

void Partition::deliver_controls(Iteration& iteration, TargetRange range) {
  for (std::int32_t t = range.first; t < range.last; ++t) deliver(iteration, mine_.targets[static_cast<std::size_t>(t)], Value());
}

void Partition::deliver_all_dead(Iteration& iteration, TargetRange range) {
  if (is_planted(Planted::dropped_dead_token) && range.last - range.first > 1) --range.last;
  for (std::int32_t t = range.first; t < range.last; ++t) deliver_dead(iteration, mine_.targets[static_cast<std::size_t>(t)]);
}

void Partition::deliver(Iteration& iteration, const Target& target, Value&& value) {
  if (target.node >= 0) {
    if (target.slot >= 0) iteration.values[static_cast<std::size_t>(target.slot)].fill(std::move(value));
    else if (target.slot <= Target::kMerge) {
      merge(iteration, target.node, Target::kMerge - target.slot, &value);
      return;
    }
    count_down(iteration, target.node, 0);
    return;
  }
  switch (target.node) {
    case Target::kFetch: fetch(*iteration.instance->record, target.slot, std::move(value)); return;
    case Target::kRemote: send(iteration, target.slot, &value); return;
    case Target::kEnter: enter(iteration, mine_.enters[static_cast<std::size_t>(target.slot)], &value); return;
    case Target::kExit: exit(iteration, mine_.exits[static_cast<std::size_t>(target.slot)], &value); return;
    case Target::kNext: next(iteration, {target.slot, false, std::move(value)}); return;
    case Target::kPredicate: predicate(iteration, std::move(value)); return;
  }
}

void Partition::deliver_dead(Iteration& iteration, const Target& target) {
  if (target.node >= 0) {
    if (target.slot <= Target::kMerge) merge(iteration, target.node, Target::kMerge - target.slot, nullptr);
    else count_down(iteration, target.node, Iteration::kDead);
    return;
  }
  switch (target.node) {
    case Target::kFetch: {
      Run& run = *iteration.instance->record->run;
      if (run.is_poisoned()) return;
      const Edge e = plan_->program.fetches[static_cast<std::size_t>(target.slot)];
      fail(run, nullptr, Status(Code::failed_precondition, fmt::format("fetch {}, {}, does not have a value: it is in a branch that was not taken",
                                                                       target.slot, plan_->program.graph.describe(e.node))));
      return;
    }
    case Target::kRemote: send(iteration, target.slot, nullptr); return;
    case Target::kEnter: enter(iteration, mine_.enters[static_cast<std::size_t>(target.slot)], nullptr); return;
    case Target::kExit: exit(iteration, mine_.exits[static_cast<std::size_t>(target.slot)], nullptr); return;
    case Target::kNext: next(iteration, {target.slot, true, {}}); return;
    case Target::kPredicate: decide(iteration, false); return;
  }
}

void Partition::count_down(Iteration& iteration, std::int32_t node, std::int32_t dead) {
  std::int32_t& awaited = iteration.awaited[static_cast<std::size_t>(node)];
  awaited = (awaited - 1) | dead;
  if ((awaited & Iteration::kCount) == 0) enable(iteration, iteration.instance->frame->nodes[static_cast<std::size_t>(node)]);
}

// The node awaits nothing more.
void Partition::enable(Iteration& iteration, const PlanNode& node) {
  Record& record = *iteration.instance->record;
  bool heavy = false;
  if (hands_over_ && node.kind == PlanNode::Kind::kernel) {
    const Cost& cost = costs_[static_cast<std::size_t>(node.index)];
    heavy = cost.samples >= 2 && cost.nanoseconds.load(std::memory_order_relaxed) >= kHeavy;
  }
  (heavy ? record.heavy : record.ready).push_back({&iteration, &node});
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
    deliver_all(iteration, {ranges[2], ranges[3]}, Tensor::scalar(input));
    deliver_all(iteration, {ranges[4], ranges[5]}, Value());
  } else if ((is_last || is_planted(Planted::merge_of_the_dead)) && !(awaited & Iteration::kMerged)) {
    if (is_planted(Planted::merge_of_the_dead)) awaited |= Iteration::kMerged;
    for (int o = 0; o < 3; ++o) deliver_all_dead(iteration, {ranges[2 * o], ranges[2 * o + 1]});
  }
  if (is_last) fired(iteration);
}

// ---- frames

Instance& Partition::instance_at(Iteration& parent, std::int32_t number) {
  const FramePlan& frame = mine_.frames[static_cast<std::size_t>(number)];
  Instance*& child = parent.children[static_cast<std::size_t>(frame.child_slot)];
  if (child) return *child;
  auto& spare = spare_instances_[static_cast<std::size_t>(number)];
  if (spare.empty()) {
    Instance& fresh = *instances_.emplace_back(std::make_unique<Instance>());
    fresh.frame = &frame;
    fresh.number = number;
    fresh.ring.resize(static_cast<std::size_t>(frame.window));
    fresh.granted.resize(frame.edges_out.size());
    fresh.exited.resize(frame.exits.size());
    fresh.invariants.resize(static_cast<std::size_t>(frame.invariants));
    fresh.invariant_came.resize(static_cast<std::size_t>(frame.invariants));
    spare.push_back(&fresh);
  }
  child = spare.back();
  spare.pop_back();
  Instance& i = *child;
  i.record = parent.instance->record;
  i.parent = &parent;
  i.oldest = i.opened = 0;
  i.enters_pending = frame.enters;
  i.invariants_pending = frame.invariants;
  i.has_dead_invariant = i.must_open = false;
  std::fill(i.granted.begin(), i.granted.end(), frame.window - 1);
  std::fill(i.exited.begin(), i.exited.end(), 0);
  std::fill(i.invariant_came.begin(), i.invariant_came.end(), 0);
  open(i);
  return i;
}

Iteration& Partition::open(Instance& instance) {
  const FramePlan& frame = *instance.frame;
  auto& spare = spare_iterations_[static_cast<std::size_t>(instance.number)];
  if (spare.empty()) {
    Iteration& fresh = *iterations_.emplace_back(std::make_unique<Iteration>());
    fresh.values.resize(static_cast<std::size_t>(frame.slots));
    fresh.children.resize(static_cast<std::size_t>(frame.children));
    spare.push_back(&fresh);
  }
  Iteration& it = *spare.back();
  spare.pop_back();
  it.instance = &instance;
  it.number = instance.opened++;
  it.tag = instance.parent ? fold_tag(instance.parent->tag, frame.key, static_cast<std::uint64_t>(it.number)) : 0;
  it.unfired = frame.unfired() - (is_planted(Planted::child_forgotten) ? frame.children : 0);
  it.fate = Iteration::Fate::open;
  if (instance.parent) {
    LoopCounters& counters = loop_counters_[static_cast<std::size_t>(instance.number)];
    const auto are_open = static_cast<std::uint64_t>(instance.opened - instance.oldest);
    add(it.number == 0 ? counters.instances : counters.iterations);
    if (it.number > 0) add(counters.open_sum, are_open);
    if (are_open > counters.most_open.load(std::memory_order_relaxed)) counters.most_open.store(are_open, std::memory_order_relaxed);
  }
  instance.ring[static_cast<std::size_t>(it.number) % instance.ring.size()] = &it;
  const bool is_forgotten = is_planted(Planted::enter_not_replayed) && it.number > 0;
  const bool is_steady = instance.invariants_pending == 0 && !instance.has_dead_invariant && !is_forgotten;
  it.awaited = is_steady ? frame.steady : frame.awaited;
  ++it.unfired;  // nothing ends before this is through
  if (is_steady) {
    for (const FramePlan::Forward& forward : frame.forwards)
      deliver(it, forward.target, Value(instance.invariants[static_cast<std::size_t>(forward.invariant)]));
    for (auto root = frame.roots.rbegin(); root != frame.roots.rend(); ++root) enable(it, frame.nodes[static_cast<std::size_t>(*root)]);
  } else {
    for (std::size_t v = 0; v < instance.invariants.size(); ++v) {
      if (!instance.invariant_came[v] || is_forgotten) continue;
      if (instance.invariants[v].has_value()) deliver_all(it, frame.invariant_targets[v], Value(instance.invariants[v]));
      else deliver_all_dead(it, frame.invariant_targets[v]);
    }
  }
  if (!instance.early.empty()) {
    std::vector<Token> early = std::exchange(instance.early, {});
    for (Token& token : early) accept_at(instance, token);
  }
  fired(it);
  return it;
}

void Partition::enter(Iteration& from, const PartitionPlan::Enter& enter, Value* value) {
  Instance& instance = instance_at(from, enter.frame);
  --instance.enters_pending;
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
    for (std::int64_t n = instance.oldest; n < instance.opened; ++n) {
      Iteration& it = *instance.ring[static_cast<std::size_t>(n) % instance.ring.size()];
      if (value) deliver_all(it, enter.targets, Value(instance.invariants[v]));
      else deliver_all_dead(it, enter.targets);
    }
  }
  if (instance.enters_pending == 0) advance(instance);
}

void Partition::exit(Iteration& from, const PartitionPlan::Exit& exit, Value* value) {
  if (!value && is_planted(Planted::exit_not_withheld)) deliver_all_dead(*from.instance->parent, exit.targets);
  if (!value) return;  // sent when the instance ends, if nothing live has left
  Instance& instance = *from.instance;
  char& exited = instance.exited[static_cast<std::size_t>(exit.ordinal)];
  if (is_planted(Planted::early_exit) && exited) return;
  if (exited) {
    fail(*instance.record->run, nullptr,
         Status(Code::failed_precondition, fmt::format("loop '{}': two iterations leave by one Exit", instance.frame->name)));
    return;
  }
  exited = 1;
  deliver_all(*instance.parent, exit.targets, std::move(*value));
}

void Partition::predicate(Iteration& iteration, Value&& value) {
  const Tensor& t = value.tensor();
  if (t.has_value() && !t.is_on_host()) {
    ++iteration.unfired;  // until it has come
    ask_device(iteration, nullptr, t);
    return;
  }
  decide(iteration, t.has_value() && t.shape().elements() == 1 && t.at(0) != 0);
}

// The predicate has come: the next iteration opens, or waits for the window.
void Partition::decide(Iteration& iteration, bool goes_on) {
  Instance& instance = *iteration.instance;
  iteration.fate = goes_on ? Iteration::Fate::goes_on : Iteration::Fate::ends;
  if (goes_on) {
    if (instance.opened - instance.oldest < instance.frame->window + is_planted(Planted::window_off_by_one)) open(instance);
    else instance.must_open = true, add(loop_counters_[static_cast<std::size_t>(instance.number)].window_waits);
    for (Iteration::Next& token : iteration.undecided) next(iteration, std::move(token));
  }
  iteration.undecided.clear();
}

void Partition::next(Iteration& from, Iteration::Next&& token) {
  Instance& instance = *from.instance;
  if (from.fate == Iteration::Fate::open) {
    if (instance.frame->has_predicate) {
      from.undecided.push_back(std::move(token));
      return;
    }
    if (token.is_dead) return;
    decide(from, true);
  }
  if (from.fate == Iteration::Fate::ends) return;
  std::int64_t n = from.number + 1;
  if (is_planted(Planted::wrong_iteration) && n < instance.opened) n = instance.opened - 1;
  if (n < instance.opened) bring(*instance.ring[static_cast<std::size_t>(n) % instance.ring.size()], std::move(token));
  else instance.waiting.push_back(std::move(token));
}

void Partition::bring(Iteration& iteration, Iteration::Next&& token) {
  const PartitionPlan::Loop& loop = mine_.loops[static_cast<std::size_t>(token.loop)];
  if (token.is_dead) {
    deliver_all_dead(iteration, loop.targets);
    deliver_all_dead(iteration, loop.index_targets);
    return;
  }
  deliver_all(iteration, loop.targets, std::move(token.value));
  if (loop.index_targets.first != loop.index_targets.last) deliver_all(iteration, loop.index_targets, Tensor::scalar(std::int32_t{1}));
}

// Gives back what is done, oldest first; opens what waited for it; ends what is through.
void Partition::advance(Instance& instance) {
  if (instance.enters_pending > 0 || instance.is_advancing) return;
  instance.is_advancing = true;
  while (instance.oldest < instance.opened) {
    Iteration*& slot = instance.ring[static_cast<std::size_t>(instance.oldest) % instance.ring.size()];
    if (slot->unfired > 0) {
      instance.is_advancing = false;
      return;
    }
    spare_iterations_[static_cast<std::size_t>(instance.number)].push_back(slot);
    slot = nullptr;
    ++instance.oldest;
    if (instance.parent && !instance.frame->edges_in.empty()) grant(instance);
    if (instance.must_open) {
      instance.must_open = false;
      std::vector<Iteration::Next> waiting = std::move(instance.waiting);
      instance.waiting.clear();
      Iteration& it = open(instance);
      for (Iteration::Next& token : waiting) bring(it, std::move(token));
      waiting.clear();
      if (instance.waiting.empty()) instance.waiting = std::move(waiting);  // keeps its storage
    }
  }
  instance.is_advancing = false;
  end(instance);
}

void Partition::end(Instance& instance) {
  if (!instance.parent) {
    end(*instance.record);
    return;
  }
  Iteration& parent = *instance.parent;
  const FramePlan& frame = *instance.frame;
  for (std::size_t e = 0; e < frame.exits.size(); ++e)
    if (!instance.exited[e]) deliver_all_dead(parent, mine_.exits[static_cast<std::size_t>(frame.exits[e])].targets);
  for (Value& v : instance.invariants) v.reset();
  parent.children[static_cast<std::size_t>(frame.child_slot)] = nullptr;
  spare_instances_[static_cast<std::size_t>(instance.number)].push_back(&instance);
  fired(parent);
}

// ---- in and out

void Partition::fetch(Record& record, std::int32_t index, Value&& value) {
  if (value.kind() != Value::Kind::tensor || value.tensor().is_on_host()) {
    record.run->set_fetch(index, std::move(value));
    return;
  }
  record.landings.push_back({index, land(value.tensor()), value.tensor().shape()});
}

// Starts the copy of a device's tensor to the host; it is there when the stream has passed.
Tensor Partition::land(const Tensor& on_device) {
  Shape shape = on_device.shape().is_scalar() ? Shape{1} : on_device.shape();  // a host scalar has no address to copy to
  Tensor host = Tensor::empty(on_device.dtype(), shape);
  mine_.device->copy_to_host(*stream_, on_device, View(host));
  return host;
}

bool Partition::is_granted(const Iteration& from, const PartitionPlan::Send& to) const {
  const Iteration* it = &from;
  for (std::int32_t d = from.instance->frame->depth; d > 0; --d) {
    if (it->number > it->instance->granted[static_cast<std::size_t>(to.place[d - 1])]) return false;
    it = it->instance->parent;
  }
  return true;
}

void Partition::send(Iteration& from, std::int32_t send, Value* value) {
  const PartitionPlan::Send& to = mine_.sends[static_cast<std::size_t>(send)];
  if (is_granted(from, to)) {
    post(from, to, value);
    return;
  }
  ++from.unfired;  // stays open until it is sent
  add(held_tokens_);
  from.instance->record->held.push_back({send, &from, value == nullptr, value ? std::move(*value) : Value()});
}

// The window of an instance has moved: who sends to it may go on.
void Partition::grant(Instance& instance) {
  Grant message{instance.record->run, 0, {}, instance.oldest + instance.frame->window - 1};
  message.path.depth = instance.frame->depth;
  const Iteration* it = instance.parent;
  for (std::int32_t d = instance.frame->depth - 1; d > 0; --d) {
    message.path.number[d - 1] = it->number;
    it = it->instance->parent;
  }
  for (std::int32_t receive : instance.frame->edges_in) {
    const PartitionPlan::Receive& r = mine_.receives[static_cast<std::size_t>(receive)];
    message.send = r.send;
    driver_.post(r.partition, message);
  }
}

// Grants overtake each other and may come late: the highest counts, and one for what is over is dropped.
void Partition::accept(const Grant& grant) {
  auto record = std::find_if(active_.begin(), active_.end(), [&](Record* r) { return r->run.get() == grant.run.get(); });
  if (record == active_.end()) return;
  const PartitionPlan::Send& send = mine_.sends[static_cast<std::size_t>(grant.send)];
  Instance* instance = (*record)->root;
  for (std::int32_t d = 1; d <= grant.path.depth; ++d) {
    const std::int64_t n = d == 1 ? 0 : grant.path.number[d - 2];
    if (n < instance->oldest || n >= instance->opened) return;
    std::int32_t frame = send.frame;
    while (mine_.frames[static_cast<std::size_t>(frame)].depth > d) frame = mine_.frames[static_cast<std::size_t>(frame)].parent;
    Iteration& around = *instance->ring[static_cast<std::size_t>(n) % instance->ring.size()];
    instance = around.children[static_cast<std::size_t>(mine_.frames[static_cast<std::size_t>(frame)].child_slot)];
    if (!instance) return;
  }
  std::int64_t& last = instance->granted[static_cast<std::size_t>(send.place[grant.path.depth - 1])];
  if (grant.last <= last) return;
  last = grant.last;
  auto& held = (*record)->held;
  for (std::size_t i = 0; i < held.size();) {
    if (held[i].send != grant.send || !is_granted(*held[i].iteration, send)) {
      ++i;
      continue;
    }
    Record::Held token = std::move(held[i]);
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
    post(*token.iteration, send, token.is_dead ? nullptr : &token.value);
    fired(*token.iteration);
  }
}

void Partition::post(Iteration& from, const PartitionPlan::Send& to, Value* value) {
  Record& record = *from.instance->record;
  Token token{record.run, to.receive, value == nullptr, {}, {}};
  const std::int32_t depth = from.instance->frame->depth;
  token.path.depth = depth;
  const Iteration* it = &from;
  for (std::int32_t d = depth; d > 0; --d) {
    token.path.number[is_planted(Planted::path_turned) ? depth - d : d - 1] = it->number;
    it = it->instance->parent;
  }
  std::vector<Tensor> hosts;  // before the event that says they are there
  if (value && !mine_.device->is_synchronous())
    each_on_device(*value, [&](const Tensor& t) { hosts.push_back(land(t)); });
  if (hosts.empty()) {
    if (value) token.value = std::move(*value);
    driver_.post(to.partition, std::move(token));
    return;
  }
  // The source stays alive until then.
  stream_->record()->then([this, to, token = std::move(token), hosts = std::move(hosts), source = *value](const Status&) mutable {
    auto next = hosts.begin();
    token.value = with_tensors(source, [&](const Tensor& t) { return t.is_on_host() ? t : (next++)->reshaped(t.shape()); });
    driver_.post(to.partition, std::move(token));
  });
}

void Partition::end(Record& record) {
  Ref<Run> run = std::move(record.run);
  record.is_active = false;
  active_.erase(std::find(active_.begin(), active_.end(), &record));
  idle_.push_back(&record);
  if (mine_.device->is_synchronous()) {
    run->leave();
    return;
  }
  // What ran later may have failed later.
  stream_->record()->then([run, this, fault = record.fault, landings = std::move(record.landings)](const Status& status) {
    if (fault->is_set()) fail_at(*run, static_cast<std::int32_t>(fault->origin()), fault->status());
    else if (!status.ok() && run->fail(status)) driver_.run_failed(*run);
    for (const Landing& l : landings) run->set_fetch(l.index, l.host.reshaped(l.shape));
    run->leave();
  });
  record.landings.clear();
}

// `source`: a node of the program; -1: none in particular.
void Partition::fail_at(Run& run, std::int32_t source, const Status& status) {
  std::string where = source < 0 ? mine_.device->name() : plan_->program.graph.describe(source);
  if (run.fail(Status(status.code(), fmt::format("{}: {}", where, status.message())))) driver_.run_failed(run);
}

void Partition::fail(Run& run, const PlanNode* node, const Status& status) { fail_at(run, node ? node->source : -1, status); }

// ---- kernels that end elsewhere

Firing& Partition::spare_firing() {
  if (spare_.empty()) spare_.push_back(firings_.emplace_back(std::make_unique<Firing>()).get());
  Firing& f = *spare_.back();
  spare_.pop_back();
  f.partition = this;
  return f;
}

Firing& Partition::take_firing(Iteration& iteration, const PlanNode& node) {
  Firing& f = spare_firing();
  f.iteration = &iteration;
  f.node = &node;
  f.nanoseconds = 0;
  f.outputs.resize(static_cast<std::size_t>(node.outputs));
  return f;
}

void Partition::run_elsewhere(Firing& firing) {
  Ref<Run> run = firing.run;  // stays until the kernel has returned
  KernelContext c = context(*firing.iteration, *firing.node, firing.outputs.data());
  c.set_sink(this, &firing);
  std::int64_t start = now_ns();
  try {
    firing.node->kernel->run(c);
  } catch (...) {
    if (c.was_deferred()) return;  // its Completion ends it
    firing.status = Status::from_current_exception();
  }
  if (c.was_deferred()) return;
  firing.nanoseconds = std::max<std::int64_t>(1, now_ns() - start);
  driver_.post_self(Ended{&firing});
}

void Partition::complete(void* ticket, Status status, std::span<Value> outputs) {
  auto& firing = *static_cast<Firing*>(ticket);
  firing.status = std::move(status);
  firing.nanoseconds = 0;
  firing.outputs.clear();
  for (Value& v : outputs) firing.outputs.push_back(std::move(v));
  driver_.post_self(Ended{&firing});
}

}  // namespace troupe
