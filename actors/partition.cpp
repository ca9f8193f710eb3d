#include <troupe/actors/partition.hpp>

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include <troupe/ops/transfer.hpp>

namespace troupe {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Partition::Partition(std::shared_ptr<const Plan> plan, std::int32_t index, Granularity granularity, int workers,
                     PartitionDriver& driver)
    : plan_(std::move(plan)), mine_(plan_->partitions[static_cast<std::size_t>(index)]), index_(index), granularity_(granularity),
      workers_(workers), driver_(driver), stream_(mine_.device->compute_stream()),
      scratch_(static_cast<std::size_t>(mine_.max_outputs)), costs_(mine_.nodes.size()) {}

Partition::~Partition() = default;

// ---- messages

void Partition::receive(PartitionMessage& message) {
  if (auto* ended = std::get_if<Ended>(&message)) {
    Firing& f = *ended->firing;
    Record& record = *f.record;
    --record.outside;
    if (f.nanoseconds > 0) measure(f.node, f.nanoseconds);
    if (!f.status.ok()) fail(*record.run, f.node, f.status);
    f.outputs.resize(static_cast<std::size_t>(mine_.nodes[static_cast<std::size_t>(f.node)].outputs));
    std::int32_t node = f.node;
    // The firing's outputs are moved on before it is given back.
    std::vector<Value> outputs = std::move(f.outputs);
    f.status = Status();
    f.run = Ref<Run>();
    finish(record, node, outputs.data());
    outputs.clear();
    f.outputs = std::move(outputs);
    spare_.push_back(&f);
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
    fresh.values.resize(static_cast<std::size_t>(mine_.slots));
    fresh.ready.reserve(mine_.nodes.size());
    fresh.heavy.reserve(mine_.nodes.size());
    idle_.push_back(&fresh);
  }
  Record* record = idle_.back();
  idle_.pop_back();
  active_.push_back(record);
  Record& r = *record;
  r.run = std::move(run);
  if (!mine_.device->is_synchronous()) r.fault = std::make_shared<Fault>();
  r.awaited = mine_.awaited;
  r.unfired = static_cast<std::int32_t>(mine_.nodes.size());
  for (const PartitionPlan::Feed& feed : mine_.feeds) {
    stream_->attribute(r.fault, -1);
    Value value = r.run->feeds()[static_cast<std::size_t>(feed.index)];
    bring_to_device(value.tensor(), *mine_.device, *stream_);
    for (const Target& t : feed.targets) deliver(r, t, t.node == Target::kFetch ? Value(r.run->feeds()[static_cast<std::size_t>(feed.index)]) : Value(value));
  }
  for (auto root = mine_.roots.rbegin(); root != mine_.roots.rend(); ++root) count_down(r, *root);
  if (r.unfired == 0) end(r);
}

// A partition cannot drain before all its tokens have come, so a token's run is either active here
// or has not started here yet.
void Partition::accept(Token& token) {
  if (token.value.kind() == Value::Kind::tensor) bring_to_device(token.value.tensor(), *mine_.device, *stream_);
  start(token.run);
  for (Record* r : active_)
    if (r->run.get() == token.run.get()) {
      deliver(*r, token.target, std::move(token.value));
      return;
    }
}

// ---- firing

bool Partition::turn(int budget) {
  // Runs in flight take turns of a hundred firings; within a run the newest enabled node goes first.
  constexpr int kShare = 100;
  std::size_t without_work = 0;
  while (budget > 0 && without_work < active_.size()) {
    if (next_active_ >= active_.size()) next_active_ = 0;
    Record& record = *active_[next_active_];
    int share = active_.size() > 1 ? std::min(budget, kShare) : budget;
    int left = share;
    while (left > 0 && record.unfired > 0) {
      if (record.ready.empty()) dispatch_heavy(record);
      if (record.ready.empty()) break;
      std::int32_t node = record.ready.back();
      record.ready.pop_back();
      fire(record, node);
      --left;
    }
    budget -= share - left;
    without_work = left == share ? without_work + 1 : 0;
    if (record.unfired > 0) ++next_active_;  // else it left `active_`, and the next stands in its place
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
    std::int32_t node = record.heavy.back();
    record.heavy.pop_back();
    if (record.run->is_poisoned()) {
      record.ready.push_back(node);
      continue;
    }
    Firing& firing = take_firing(record, node);
    firing.run = record.run;
    ++record.outside;
    driver_.hand_over(firing);
  }
}

void Partition::fire(Record& record, std::int32_t node) {
  if (record.run->is_poisoned()) {
    skip(record, node);
    return;
  }
  // On a stream device a kernel only enqueues: always from here, so that the stream has one user.
  if (granularity_ == Granularity::op && mine_.device->is_synchronous()) {
    Firing& firing = take_firing(record, node);
    firing.run = record.run;
    ++record.outside;
    driver_.hand_over(firing);
    return;
  }
  if (run_kernel(record, node)) finish(record, node, scratch_.data());
}

void Partition::skip(Record& record, std::int32_t node) {
  const PlanNode& n = mine_.nodes[static_cast<std::size_t>(node)];
  for (std::int32_t o = 0; o < n.outputs; ++o) scratch_[static_cast<std::size_t>(o)].reset();
  finish(record, node, scratch_.data());
}

KernelContext Partition::context(Record& record, std::int32_t node, Value* outputs) {
  const PlanNode& n = mine_.nodes[static_cast<std::size_t>(node)];
  return KernelContext({record.values.data() + n.first_input, static_cast<std::size_t>(n.inputs)},
                       {outputs, static_cast<std::size_t>(n.outputs)}, *mine_.device, *stream_, record.run->info());
}

// False if the kernel deferred its end.
bool Partition::run_kernel(Record& record, std::int32_t node) {
  if (spare_.empty()) spare_.push_back(firings_.emplace_back(std::make_unique<Firing>()).get());
  Firing* ticket = spare_.back();  // taken only if the kernel defers
  ticket->partition = this;
  ticket->record = &record;
  ticket->node = node;
  KernelContext c = context(record, node, scratch_.data());
  c.set_sink(this, ticket);
  if (record.fault) stream_->attribute(record.fault, node);
  bool timed = costs_[static_cast<std::size_t>(node)].samples < 3 || (++tick_ % kSampled) == 0;
  std::int64_t start = timed ? now_ns() : 0;
  // A deferring kernel may be completed before `run` returns: the ticket is spoken for first.
  spare_.pop_back();
  ++record.outside;
  try {
    mine_.nodes[static_cast<std::size_t>(node)].kernel->run(c);
  } catch (...) {
    Status status = Status::from_current_exception();
    if (!c.was_deferred()) {
      --record.outside;
      spare_.push_back(ticket);
      fail(*record.run, node, status);
      skip(record, node);
      return false;
    }
    fail(*record.run, node, status);
    return false;
  }
  if (c.was_deferred()) return false;
  --record.outside;
  spare_.push_back(ticket);
  if (timed) measure(node, now_ns() - start);
  return true;
}

void Partition::measure(std::int32_t node, std::int64_t nanoseconds) {
  Cost& cost = costs_[static_cast<std::size_t>(node)];
  // The first firings warm caches up: their least counts; later samples move the estimate slowly.
  if (cost.samples == 0) cost.nanoseconds = nanoseconds;
  else if (cost.samples < 3) cost.nanoseconds = std::min(cost.nanoseconds, nanoseconds);
  else cost.nanoseconds += (nanoseconds - cost.nanoseconds) / 4;
  if (cost.samples < 3) ++cost.samples;
}

void Partition::finish(Record& record, std::int32_t node, Value* outputs) {
  const PlanNode& n = mine_.nodes[static_cast<std::size_t>(node)];
  for (std::int32_t i = 0; i < n.inputs; ++i) record.values[static_cast<std::size_t>(n.first_input + i)].reset();
  const std::int32_t* begin = mine_.output_targets.data() + n.first_output;
  for (std::int32_t o = 0; o < n.outputs; ++o) {
    const Target* t = mine_.targets.data() + begin[o];
    const Target* last = mine_.targets.data() + begin[o + 1];
    if (t == last) {
      outputs[o].reset();
      continue;
    }
    for (; t + 1 < last; ++t) deliver(record, *t, Value(outputs[o]));
    deliver(record, *t, std::move(outputs[o]));
  }
  for (std::int32_t t = begin[n.outputs]; t < begin[n.outputs + 1]; ++t)
    deliver(record, mine_.targets[static_cast<std::size_t>(t)], Value());
  if (--record.unfired == 0) end(record);
}

void Partition::deliver(Record& record, const Target& target, Value&& value) {
  if (target.node >= 0) {
    if (target.slot >= 0) record.values[static_cast<std::size_t>(target.slot)] = std::move(value);
    if (--record.awaited[static_cast<std::size_t>(target.node)] == 0) count_down(record, target.node);
  } else if (target.node == Target::kFetch) {
    fetch(record, target.slot, std::move(value));
  } else {
    send(record, mine_.sends[static_cast<std::size_t>(target.slot)], std::move(value));
  }
}

// The node awaits nothing more.
void Partition::count_down(Record& record, std::int32_t node) {
  bool heavy = granularity_ == Granularity::automatic && workers_ > 1 && mine_.device->is_synchronous() && costs_[static_cast<std::size_t>(node)].samples >= 2 &&
               costs_[static_cast<std::size_t>(node)].nanoseconds >= kHeavy;
  (heavy ? record.heavy : record.ready).push_back(node);
}

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

void Partition::send(Record& record, const RemoteTarget& remote, Value&& value) {
  if (value.kind() != Value::Kind::tensor || value.tensor().is_on_host()) {
    driver_.post(remote.partition, Token{record.run, remote.target, std::move(value)});
    return;
  }
  Tensor host = land(value.tensor());  // before the event that says it is there
  // The source stays alive until then.
  stream_->record()->then([this, remote, run = record.run, host, source = value](const Status&) {
    driver_.post(remote.partition, Token{run, remote.target, host.reshaped(source.tensor().shape())});
  });
}

void Partition::end(Record& record) {
  Ref<Run> run = std::move(record.run);
  active_.erase(std::find(active_.begin(), active_.end(), &record));
  idle_.push_back(&record);
  if (mine_.device->is_synchronous()) {
    run->leave();
    return;
  }
  // What ran later may have failed later.
  stream_->record()->then([run, this, fault = record.fault, landings = std::move(record.landings)](const Status& status) {
    if (fault->is_set()) fail(*run, static_cast<std::int32_t>(fault->origin()), fault->status());
    else if (!status.ok() && run->fail(status)) driver_.run_failed(*run);
    for (const Landing& l : landings) run->set_fetch(l.index, l.host.reshaped(l.shape));
    run->leave();
  });
  record.landings.clear();
}

void Partition::fail(Run& run, std::int32_t node, const Status& status) {
  std::string where = node < 0 ? mine_.device->name() : plan_->program.graph.describe(mine_.nodes[static_cast<std::size_t>(node)].source);
  if (run.fail(Status(status.code(), fmt::format("{}: {}", where, status.message())))) driver_.run_failed(run);
}

// ---- kernels that end elsewhere

Firing& Partition::take_firing(Record& record, std::int32_t node) {
  if (spare_.empty()) spare_.push_back(firings_.emplace_back(std::make_unique<Firing>()).get());
  Firing& f = *spare_.back();
  spare_.pop_back();
  f.partition = this;
  f.record = &record;
  f.node = node;
  f.nanoseconds = 0;
  f.outputs.resize(static_cast<std::size_t>(mine_.nodes[static_cast<std::size_t>(node)].outputs));
  return f;
}

void Partition::run_elsewhere(Firing& firing) {
  Ref<Run> run = firing.run;  // stays until the kernel has returned
  KernelContext c = context(*firing.record, firing.node, firing.outputs.data());
  c.set_sink(this, &firing);
  std::int64_t start = now_ns();
  try {
    mine_.nodes[static_cast<std::size_t>(firing.node)].kernel->run(c);
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
