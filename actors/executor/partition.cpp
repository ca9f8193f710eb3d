#include <troupe/actors/executor/partition.hpp>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <troupe/actors/executor/firing_rule.hpp>
#include <troupe/devices/base/fault_injection.hpp>
#include <troupe/devices/scalar/scalar_eval.hpp>

namespace troupe::detail {

Partition::Partition(std::shared_ptr<const Plan> plan, std::int32_t index, Granularity granularity,
                     int workers, PartitionDriver& driver)
    : plan_(std::move(plan)), mine_(plan_->partitions[static_cast<std::size_t>(index)]),
      index_(index), granularity_(granularity), driver_(driver),
      observer_(*plan_, mine_, index, driver), failures_(*plan_, mine_, observer_),
      stream_(*mine_.device, driver, observer_, failures_), frames_(mine_),
      kernels_(*plan_, mine_, granularity, workers, driver, stream_, observer_, failures_),
      edges_(*plan_, mine_, driver, runs_, frames_, stream_, observer_, failures_, *this) {}

Partition::~Partition() = default;

// ---- messages

void Partition::receive(PartitionMessage& message) {
  // The run that an exception abandons. A kernel is used again, so its run is noted before.
  struct RunOf {
    Ref<Run> operator()(const StartRun& m) const { return m.run; }
    Ref<Run> operator()(const KernelDone&) const { return {}; }
    Ref<Run> operator()(const Token& m) const { return m.run; }
    Ref<Run> operator()(const Grant& m) const { return m.run; }
    Ref<Run> operator()(const StreamEventDone&) const { return {}; }
    Ref<Run> operator()(const Abandon&) const { return {}; }
    Ref<Run> operator()(const Inspect&) const { return {}; }
    Ref<Run> operator()(const NodeLost& m) const { return m.run; }
    Ref<Run> operator()(const DeviceError&) const { return {}; }
  };
  const auto* done = std::get_if<KernelDone>(&message);
  RunState* const run_state = done ? done->kernel->iteration->instance->run_state : nullptr;
  try {
    observer_.message_received();
    std::visit([this](auto& m) { handle(m); }, message);
  } catch (...) {
    if (run_state) {
      if (run_state->is_active) give_up(run_state->run);
    } else if (const Ref<Run> run = std::visit(RunOf{}, message)) {
      give_up(run);
    } else {
      throw;
    }
  }
}

void Partition::handle(KernelDone& message) {
  PendingKernel& kernel = *message.kernel;
  IterationState& iteration = *kernel.iteration;
  RunState& run_state = *iteration.instance->run_state;
  --run_state.under_way;
  add(run_state.handled);
  ++run_state.ended;
  if (run_state.is_abandoned) {
    kernel.outputs.clear();
    kernel.status = Status();
    if (kernel.execution) kernels_.abandon_loop(kernel);
    kernel.run = Ref<Run>();
    kernels_.give_back(kernel);
    if (run_state.under_way == 0) discard(run_state);
    return;
  }
  // a predicate has come from the device
  if (!kernel.node || kernel.node->kind == PlanNode::Kind::switch_) {
    const PlanNode* const node = kernel.node;
    Value value = std::move(kernel.outputs[0]);
    kernels_.give_back(kernel);
    if (node) {
      iteration.values[static_cast<std::size_t>(node->first_input) + 1] = std::move(value);
      fire_switch(iteration, *node);
    } else {
      decide(iteration, value.tensor().at(0) != 0);
      fired(iteration);
    }
    return;
  }
  const PlanNode& node = *kernel.node;
  kernels_.measure_end(kernel);
  const bool is_dead = !kernel.status.ok();
  if (is_dead && kernel.execution) kernels_.fail_loop(kernel, kernel.status);
  else if (is_dead)
    failures_.fail(*run_state.run, &node, RunFailures::in_loop(iteration, kernel.status));
  else if (kernel.execution) kernels_.end_loop(kernel);
  kernel.outputs.resize(static_cast<std::size_t>(node.outputs));
  // The outputs are moved on before the kernel is given back.
  std::vector<Value> outputs = std::move(kernel.outputs);
  kernel.status = Status();
  kernel.run = Ref<Run>();
  if (is_dead) finish_dead(iteration, node);
  else finish(iteration, node, outputs.data());
  outputs.clear();
  kernel.outputs = std::move(outputs);
  kernels_.give_back(kernel);
}

// A partition cannot drain before all its tokens have come. So a token's run is active here, or has
// not started here yet, unless the run was abandoned or the token is one too many.
void Partition::handle(Token& token) {
  start(token.run);
  observer_.token_received(token);
  if (RunState* run_state = runs_.find(*token.run)) {
    add(run_state->handled);
    run_state->received += static_cast<std::uint64_t>(token.times);
    if (!run_state->is_abandoned) receive_in(*run_state, token);
  } else if (!token.run->is_poisoned()) {
    edges_.refuse(*token.run, mine_.receives[static_cast<std::size_t>(token.receive)],
                  "when all of its run was done");
  }
}

void Partition::handle(Inspect& question) {
  // Tokens are counted when they go: later, `sent` would grow without `handled`.
  edges_.flush();
  stream_.record_timed();
  observer_.answer(question, {runs_, frames_, kernels_});
  stream_.time(observer_.traces());
}

// ---- runs

void Partition::start(const Ref<Run>& run) {
  if (!run->enter(index_)) return;  // a token from another partition was faster than StartRun
  try {
    runs_.reserve(static_cast<std::size_t>(mine_.nodes));
  } catch (...) {
    give_up(run);
    run->leave();
    return;
  }
  RunState& r = runs_.start();
  add(r.handled);
  r.run = run;
  r.fired = r.sent = r.received = 0;
  observer_.run_started();
  if (!stream_.is_synchronous()) r.fault = std::make_shared<Fault>();
  FrameState& root = *(r.root = &frames_.take_root(r.root, r));
  r.calls.elsewhere.instance = &root;
  r.calls.elsewhere.unfired = 1;
  r.calls.start(mine_.has_cut_function ? mine_.frames.size() : 0, plan_->call_depth,
                static_cast<std::size_t>(mine_.overs_in));
  root.enters_pending = 1;  // the run must not end until the feeds are delivered
  IterationState& outside = open(root);
  for (const PartitionPlan::Feed& feed : mine_.feeds) {
    stream_.stream().attribute(r.fault, -1);
    const Tensor& fed = r.run->feeds()[static_cast<std::size_t>(feed.index)];
    Value value = fed;
    stream_.copy_to_device_or_fail(*r.run, value,
                                   plan_->program.feeds[static_cast<std::size_t>(feed.index)].node);
    for (std::int32_t t = feed.targets.first; t < feed.targets.last; ++t) {
      const Target& target = mine_.targets[static_cast<std::size_t>(t)];
      deliver(outside, target, target.is(Destination::fetch) ? Value(fed) : Value(value));
    }
  }
  root.enters_pending = 0;
  advance(root);
}

void Partition::end(RunState& run_state) {
  Ref<Run> run = std::move(run_state.run);
  runs_.end(run_state);
  if (mine_.has_cut_function) run_state.calls.clear();
  edges_.flush();  // a partition that has left a run sends nothing more of it
  // firings of the turn under way, which adds them up when it is over
  const std::uint64_t fired_now = share_ > 0 ? static_cast<std::uint64_t>(share_ - left_) + 1 : 0;
  const RunTotals done{run_state.fired + fired_now, run_state.sent, run_state.received};
  if (stream_.is_synchronous()) {
    run->has_done(index_, done);
    run->leave();
    return;
  }
  // Work on the stream may fail later. The recorder is then used by other runs, so the failure is
  // recorded in a turn.
  stream_.stream().record()->then(
      [run, this, done, fault = run_state.fault,
       pending_fetches = std::move(run_state.pending_fetches)](const Status& status) {
        const auto origin = fault->is_set() ? static_cast<std::int32_t>(fault->origin()) : -1;
        if ((fault->is_set() || !status.ok()) && !run->is_poisoned())
          driver_.post_self(DeviceError{run->number(), origin, ticks()});
        if (fault->is_set()) failures_.fail_at(*run, origin, fault->status());
        else if (!status.ok()) run->fail(status);
        for (const PendingFetch& l : pending_fetches)
          run->set_fetch(l.index, l.host.reshaped(l.shape));
        run->has_done(index_, done);
        run->leave();
      });
  run_state.pending_fetches.clear();
}

// ---- the turn

// A turn is divided into shares. If several runs are active, a share is a hundred firings of one
// run; else it is the whole budget. A run that uses up its share has its queue rotated: see Note
// [Ready order] in PROTOCOL.md.
bool Partition::turn(int budget) {
  constexpr int kShare = 100;
  // firings between two readings of the clock, for loops' times; prime, to be out of step with
  // iterations
  constexpr int kFiringsALook = 61;
  std::size_t without_work = 0;
  if (stream_.is_full()) {  // the turn goes on when the stream has reached its event
    break_turn();
    return false;
  }
  const std::uint64_t began = observer_.begin_turn();
  const DeviceStream::Held held(stream_);
  kernels_.begin_turn();
  const int allowed = budget;
  int until_look = kFiringsALook;
  std::uint64_t run_number = 0;
  while (budget > 0 && !kernels_.is_turn_long() && without_work < runs_.active().size()) {
    RunState& run_state = runs_.next();
    run_number = run_state.run->number();
    const int share = share_ = left_ =
        runs_.active().size() > 1 ? std::min(budget, kShare) : budget;
    // counted here, and stored to left_: read back from memory, it costs a tiny loop 13 ns an
    // iteration
    int left = share;
    if (!run_state.ready.is_empty()) add(run_state.handled);
    try {
      while (left > 0 && run_state.is_active) {
        if (!run_state.ready.has_next()) {
          kernels_.dispatch_heavy(run_state);
          run_state.ready.admit_last();
          if (!run_state.ready.has_next()) break;
        }
        if (observer_.looks_closer()) [[unlikely]] {
          if (kernels_.is_turn_long()) break;
          const ReadyNode next = run_state.ready.pop();
          observer_.observe(*next.iteration, *next.node,
                            [&] { fire(*next.iteration, *next.node); });
        } else {
          const ReadyNode next = run_state.ready.pop();
          fire(*next.iteration, *next.node);
        }
        left_ = --left;
        if (--until_look == 0) [[unlikely]]
          observer_.look_at_clock(ticks()), until_look = kFiringsALook;
      }
    } catch (...) {
      if (!run_state.is_active) {
        share_ = 0;
        throw;
      }
      give_up(run_state.run);
      --left;
    }
    const int used = share - left;
    share_ = 0;
    if (left <= 0 && run_state.is_active && run_state.ready.rotate())
      kernels_.hand_over_heavy(run_state);
    budget -= used;
    run_state.fired += static_cast<std::uint64_t>(used);
    without_work = used == 0 ? without_work + 1 : 0;
    if (run_state.is_active) runs_.advance();
  }
  edges_.flush();  // before the books of the turn, for which no other node waits
  if (budget < allowed) observer_.end_turn(began, run_number, allowed - budget);
  const bool has_more = std::any_of(runs_.active().begin(), runs_.active().end(),
                                    [](const RunState* r) { return !r->ready.is_empty(); });
  if (has_more || runs_.is_idle()) observer_.not_parked();
  return has_more;
}

// ---- firing

// Runs a program of single elements (counters, predicates, scalar losses) on the elements, without
// a context or a clock reading. False if an input has several elements, or is on a stream device.
inline bool Partition::run_scalars(IterationState& iteration, const PlanNode& node) {
  if (node.held) load_bound_inputs(mine_, iteration, node);
  const std::span inputs(iteration.values.data() + node.first_input,
                         static_cast<std::size_t>(node.inputs));
  Value result;
  std::size_t scalars = 0;
  while (scalars < inputs.size() && inputs[scalars].is_inline()) ++scalars;
  if (scalars == inputs.size()) evaluate_scalars(*node.scalars, inputs, result);
  else if (iteration.instance->run_state->fault ||
           !evaluate_elements(*node.scalars, inputs, result))
    return false;
  finish(iteration, node, &result);
  return true;
}

void Partition::fire(IterationState& iteration, const PlanNode& node) {
  RunState& run_state = *iteration.instance->run_state;
  if (run_state.fault && run_state.fault->is_set() && !run_state.run->is_poisoned()) {
    observer_.record_failure(*run_state.run, static_cast<std::int32_t>(run_state.fault->origin()));
    failures_.fail_at(*run_state.run, static_cast<std::int32_t>(run_state.fault->origin()),
                      run_state.fault->status());
  }
  if ((iteration.awaited[static_cast<std::size_t>(node.place)] & IterationState::kDead) ||
      run_state.run->is_poisoned()) {
    if (node.kind == PlanNode::Kind::trigger && !run_state.run->is_poisoned()) {
      kernels_.scratch()[0] = Tensor::scalar(true);
      finish(iteration, node, kernels_.scratch());
    } else if (node.kind == PlanNode::Kind::return_) {
      iteration.values[static_cast<std::size_t>(node.first_input)].reset();
      deliver_result(iteration, node, nullptr);
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
      if (node.held) load_bound_inputs(mine_, iteration, node);
      fire_switch(iteration, node);
      return;
    case PlanNode::Kind::call: call(iteration, node); return;
    case PlanNode::Kind::return_:
      load_bound_inputs(mine_, iteration, node);
      kernels_.scratch()[0] =
          std::move(iteration.values[static_cast<std::size_t>(node.first_input)]);
      deliver_result(iteration, node, kernels_.scratch());
      return;
    case PlanNode::Kind::trigger:
      kernels_.scratch()[0] = Tensor::scalar(true);
      finish(iteration, node, kernels_.scratch());
      return;
    case PlanNode::Kind::merge:
      throw Error(Code::internal, "a Merge is ready, which `merge` fires");
    case PlanNode::Kind::identity:
      if (node.held) load_bound_inputs(mine_, iteration, node);
      kernels_.scratch()[0] =
          std::move(iteration.values[static_cast<std::size_t>(node.first_input)]);
      finish(iteration, node, kernels_.scratch());
      return;
  }
  // On a stream device a kernel only enqueues: always from here, so that the stream has one user.
  if (granularity_ == Granularity::op && stream_.is_synchronous()) {
    kernels_.hand_over(iteration, node);
    return;
  }
  edges_.flush();
  switch (kernels_.run(iteration, node)) {
    case KernelRunner::Outcome::done: finish(iteration, node, kernels_.scratch()); return;
    case KernelRunner::Outcome::under_way: return;
    case KernelRunner::Outcome::failed: finish_dead(iteration, node); return;
  }
}

// Fires a Switch: delivers its data to the side that the predicate selects, and dead tokens to the
// others.
void Partition::fire_switch(IterationState& iteration, const PlanNode& node) {
  Value& predicate = iteration.values[static_cast<std::size_t>(node.first_input) + 1];
  std::int64_t side = 0;
  if (predicate.is_inline() && predicate.dtype() == DType::boolean) {
    bool b;
    std::memcpy(&b, predicate.scalar_bits(), sizeof b);
    side = b;
  } else if (const Tensor& t = predicate.tensor(); t.shape().elements() != 1) {
    failures_.fail(
        *iteration.instance->run_state->run, &node,
        RunFailures::in_loop(iteration, Status(Code::invalid_argument,
                                               fmt::format("its predicate must be a scalar, not {}",
                                                           t.shape().text()))));
    finish_dead(iteration, node);
    return;
  } else if (!t.is_on_host()) {
    kernels_.ask_device(iteration, &node, t);
    return;
  } else {
    side = static_cast<std::int64_t>(t.at(0));
  }
  Value& data = iteration.values[static_cast<std::size_t>(node.first_input)];
  predicate.reset();
  if (side < 0 || side >= node.outputs) side = node.outputs - 1;
  const std::int32_t* ranges = mine_.output_targets.data() + node.first_output;
  if (is_planted(Planted::early_exit) && side == 1 && ranges[0] < ranges[1] &&
      mine_.targets[static_cast<std::size_t>(ranges[0])].is(Destination::exit))
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

void Partition::finish(IterationState& iteration, const PlanNode& node, Value* outputs) {
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

void Partition::finish_dead(IterationState& iteration, const PlanNode& node) {
  observer_.dead_firing(node);
  empty_inputs(iteration, node);
  const std::int32_t* ranges = mine_.output_targets.data() + node.first_output;
  for (std::int32_t o = 0; o <= node.outputs; ++o)
    if (ranges[2 * o] != ranges[2 * o + 1])
      deliver_all_dead(iteration, {ranges[2 * o], ranges[2 * o + 1]});
  fired(iteration);
}

}  // namespace troupe::detail
