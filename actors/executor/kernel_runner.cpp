#include <troupe/actors/executor/kernel_runner.hpp>

#include <algorithm>
#include <exception>
#include <unordered_set>
#include <utility>

#include <troupe/actors/executor/token_value.hpp>
#include <troupe/actors/plan/finite_watch.hpp>

namespace troupe {

namespace {

// The kernel under way on this thread. A kernel that throws drops its Completion while the
// exception propagates, before the exception can be read. The kernel then ends with that exception,
// when it has returned.
class Under {
 public:
  explicit Under(void* ticket)
      : ticket_(ticket), exceptions_(std::uncaught_exceptions()),
        outer_(std::exchange(innermost_, this)) {}
  ~Under() { innermost_ = outer_; }
  Under(const Under&) = delete;
  Under& operator=(const Under&) = delete;

  /// Returns true if this is the Completion of the kernel under way, dropped by an exception. Keeps
  /// the status, in case the kernel goes on.
  static bool drops(void* ticket, Status& status) {
    Under* const u = innermost_;
    if (!u || u->ticket_ != ticket || std::uncaught_exceptions() <= u->exceptions_) return false;
    u->is_dropped = true;
    u->status = std::move(status);
    return true;
  }

  bool is_dropped = false;
  Status status;

 private:
  static inline thread_local Under* innermost_ = nullptr;
  void* const ticket_;
  const int exceptions_;
  Under* const outer_;
};

// Returns true if the time of one firing predicts the next one. It does not if the run decides how
// large operands are, if the kernel iterates over several lists, or if it writes text to a reader
// that may not read.
bool tells_its_work(const Graph& graph, std::int32_t id) {
  const Node& node = graph.node(id);
  if (node.op->name == "ResidentLoop") return false;
  if (node.state >= 0 && graph.states()[static_cast<std::size_t>(node.state)].is_of_host())
    return false;
  const auto lists = std::count_if(node.inputs.begin(), node.inputs.end(),
                                   [&](const Edge& e) { return graph.spec(e).is_list(); });
  if (lists > 1) return false;  // with one list the work is one element, or the outputs show it
  const auto is_known = [](const ValueSpec& spec) { return spec.shape.is_known(); };
  return std::all_of(node.outputs.begin(), node.outputs.end(), is_known) &&
         std::all_of(node.inputs.begin(), node.inputs.end(),
                     [&](const Edge& e) { return is_known(graph.spec(e)); });
}

// Called before the kernel's end is posted, because until that is handled the run state is this
// run's.
void count_end(const PendingKernel& kernel) {
  kernel.iteration->instance->run_state->posted.fetch_add(1, std::memory_order_relaxed);
}

// Returns the bytes that the kernel may put into lists. A kernel mostly returns the list of its
// first input, so it adds at most its other inputs. Any thread, before the kernel moves its inputs.
std::uint64_t put_into_lists(const IterationState& iteration, const PlanNode& node) {
  std::uint64_t bytes = 0;
  for (std::int32_t i = 0; i < node.inputs; ++i)
    if (const Value& v = iteration.values[static_cast<std::size_t>(node.first_input + i)];
        i > 0 || !v.is_list())
      bytes += bytes_of(v);
  return bytes;
}

// Checks results after their operands have been released.
Status look(const PlanNode& node, std::span<const Value> outputs) {
  const auto* watched = dynamic_cast<const WatchedKernel*>(node.kernel);
  if (!watched) return {};
  try {
    watched->look(outputs);
  } catch (...) { return Status::from_current_exception(); }
  return {};
}

}  // namespace

KernelRunner::KernelRunner(const Plan& plan, const PartitionPlan& mine, Granularity granularity,
                           int workers, PartitionDriver& driver, DeviceStream& stream,
                           PartitionObserver& observer, RunFailures& failures)
    : plan_(plan), mine_(mine), granularity_(granularity), driver_(driver), stream_(stream),
      observer_(observer), failures_(failures),
      hands_over_(granularity == Granularity::automatic && workers > 1 && stream.is_synchronous()),
      scratch_(static_cast<std::size_t>(std::max(1, mine.max_outputs))),
      costs_(static_cast<std::size_t>(mine.nodes)) {}

// ---- in the turn

KernelRunner::Outcome KernelRunner::run(IterationState& iteration, const PlanNode& node) {
  if (node.resident) [[unlikely]]
    return run_loop(iteration, node);
  RunState& run_state = *iteration.instance->run_state;
  load_bound_inputs(mine_, iteration, node);
  if (spare_.empty())
    spare_.push_back(pending_.emplace_back(std::make_unique<PendingKernel>()).get());
  PendingKernel* ticket = spare_.back();  // taken only if the kernel defers
  ticket->runner = this;
  ticket->iteration = &iteration;
  ticket->node = &node;
  KernelContext c = context(iteration, node, scratch_.data());
  c.set_sink(this, ticket);
  if (run_state.fault) {
    stream_.stream().attribute(run_state.fault, node.source);
    stream_.label({node.source, run_state.run->number(), iteration.number});
  }
  Cost& cost = costs_[static_cast<std::size_t>(node.index)];
  const std::int64_t expected_ns = cost.nanoseconds.load(std::memory_order_relaxed);
  const bool was_heavy = expected_ns >= kHeavy;
  if (hands_over_ && expected_ns >= kMedium) driver_.before_medium();
  constexpr std::int64_t kNoticed = 1000;  // ns; reading the clock takes a hundredth of this
  const bool is_noticed = observer_.has_loops() && expected_ns >= kNoticed;
  bool timed = was_heavy || cost.samples < 3 || (++tick_ % kSampled) == 0;
  // its kernel moves its inputs
  const std::uint64_t put = timed && node.makes_list ? put_into_lists(iteration, node) : 0;
  std::int64_t start = timed ? steady_ns() : 0;
  // A deferring kernel may be completed before `run` returns: the ticket is spoken for first.
  spare_.pop_back();
  ++run_state.under_way;
  observer_.kernel_begins(run_state.run->info().id, node);
  try {
    node.kernel->run(c);
    // a kernel that reshapes a host scalar leaves its output on the host
    if (run_state.fault && !c.was_deferred()) {
      for (Value& v : c.all_outputs()) stream_.copy_to_device(v);
      if (plan_.check_finite) look_later(iteration, node, c.all_outputs());
    }
  } catch (...) {
    observer_.kernel_returned();
    ticket->began = std::chrono::nanoseconds(steady_ns());
    Status status = Status::from_current_exception();
    failures_.fail(*run_state.run, &node, RunFailures::in_loop(iteration, status));
    if (!c.was_deferred()) {
      --run_state.under_way;
      spare_.push_back(ticket);
      for (std::int32_t o = 0; o < node.outputs; ++o) scratch_[static_cast<std::size_t>(o)].reset();
      return Outcome::failed;
    }
    return Outcome::under_way;
  }
  if (run_state.fault) stream_.count_kernel(run_state.run);
  observer_.kernel_returned();
  if (is_noticed || timed) observer_.look_at_clock(ticks());
  if (c.was_deferred()) {
    // its end, which others may have posted, is handled in a later turn
    ticket->began = std::chrono::nanoseconds(steady_ns());
    return Outcome::under_way;
  }
  --run_state.under_way;
  spare_.push_back(ticket);
  if (timed) {
    const std::int64_t took = steady_ns() - start;
    measure(node, took, {scratch_.data(), static_cast<std::size_t>(node.outputs)}, put, true);
    if (took >= kHeavy) {
      if (!observer_.is_drawn()) observer_.record_kernel(iteration, node, start, took);
      if ((heavy_ns_ += took) >= kLongTurn && !driver_.clock().is_stepped()) {
        is_long_ = true;
        observer_.look_closer();
      }
    }
  }
  return Outcome::done;
}

// ---- loops that stay whole
//
// The turn runs the first slice. Others go to the workers, one at a time, between the jobs that
// wait there, so that an endless loop keeps no worker to itself.

ResidentRun::Slice KernelRunner::slice() const {
  ResidentRun::Slice slice;
  if (driver_.clock().is_stepped()) slice.iterations = 1000;
  return slice;
}

void KernelRunner::start_loop(PendingKernel& kernel) {
  const PlanNode& node = *kernel.node;
  KernelContext c = context(*kernel.iteration, node, kernel.outputs.data());
  kernel.run = kernel.iteration->instance->run_state->run;
  kernel.began = std::chrono::nanoseconds(steady_ns());
  kernel.ran = kernel.began.count();
  kernel.opened = driver_.clock().at(ticks());
  kernel.put = 0;
  kernel.execution = node.resident->take();
  kernel.execution->start(c, [this, &kernel] {
    kernel.waits_for_worker.store(true, std::memory_order_relaxed);
    driver_.hand_over(kernel);
  });
}

KernelRunner::Outcome KernelRunner::run_loop(IterationState& iteration, const PlanNode& node) {
  RunState& run_state = *iteration.instance->run_state;
  load_bound_inputs(mine_, iteration, node);
  PendingKernel& kernel = take(iteration, node);
  start_loop(kernel);
  // its end, if it waits for a kernel, may be posted before `advance` returns
  ++run_state.under_way;
  observer_.kernel_begins(run_state.run->info().id, node);
  ResidentRun::Outcome how = ResidentRun::Outcome::abandoned;
  Status status;
  try {
    how = kernel.execution->advance(slice());
  } catch (...) { status = Status::from_current_exception(); }
  observer_.kernel_returned();
  observer_.look_at_clock(ticks());
  if (status.ok() && how == ResidentRun::Outcome::waiting) return Outcome::under_way;
  if (status.ok() && how == ResidentRun::Outcome::more) {
    kernel.waits_for_worker.store(true, std::memory_order_relaxed);
    driver_.hand_over(kernel);
    return Outcome::under_way;
  }
  --run_state.under_way;
  const bool is_done = status.ok() && how == ResidentRun::Outcome::done;
  if (is_done) {
    const std::int64_t took = std::max<std::int64_t>(1, steady_ns() - kernel.ran);
    const std::span outputs(scratch_.data(), static_cast<std::size_t>(node.outputs));
    kernel.execution->take(outputs);
    if (took >= kHeavy && !observer_.is_drawn()) observer_.record_loop(kernel, took);
    end_loop(kernel);
    measure(node, took, outputs, 0, true);
    if (took >= kHeavy && (heavy_ns_ += took) >= kLongTurn && !driver_.clock().is_stepped()) {
      is_long_ = true;
      observer_.look_closer();
    }
  } else {
    fail_loop(kernel, status);
  }
  kernel.run = Ref<Run>();
  give_back(kernel);
  return is_done ? Outcome::done : Outcome::failed;
}

// Returns false if the loop goes on, elsewhere perhaps by now.
bool KernelRunner::advance_loop(PendingKernel& kernel) {
  ResidentRun::Outcome how = ResidentRun::Outcome::abandoned;
  try {
    how = kernel.execution->advance(slice());
    if (how == ResidentRun::Outcome::done) kernel.execution->take(kernel.outputs);
  } catch (...) {
    kernel.status = Status::from_current_exception();
    return true;
  }
  if (how == ResidentRun::Outcome::waiting) return false;
  if (how == ResidentRun::Outcome::more) {
    kernel.waits_for_worker.store(true, std::memory_order_relaxed);
    driver_.hand_over(kernel);
    return false;
  }
  if (how == ResidentRun::Outcome::abandoned)
    kernel.status = Status(Code::aborted, "the run is over");
  return true;
}

// An iteration counts as a firing of the run.
void KernelRunner::count_loop(const PendingKernel& kernel) {
  kernel.iteration->instance->run_state->fired +=
      static_cast<std::uint64_t>(kernel.execution->iterations());
  observer_.loop_ended(*kernel.node, driver_.clock().at(ticks()) - kernel.opened);
}

// A run that is over has its error.
void KernelRunner::fail_loop(PendingKernel& kernel, const Status& status) {
  const IterationState& iteration = *kernel.iteration;
  Run& run = *iteration.instance->run_state->run;
  const ResidentRun& execution = *kernel.execution;
  count_loop(kernel);
  if (!run.is_poisoned()) {
    const std::string where = execution.where();
    if (where.empty()) {
      failures_.fail(run, kernel.node, RunFailures::in_loop(iteration, status));
    } else {
      std::string tag = execution.tag();
      if (iteration.instance->parent) tag = tag_of(iteration) + (tag.empty() ? "" : ", ") + tag;
      failures_.fail_within(
          run, *kernel.node, where,
          tag.empty() ? status : Status(status.code(), "in " + tag + ": " + status.message()));
    }
  }
  kernel.execution.reset();
}

void KernelRunner::abandon_loop(PendingKernel& kernel) {
  count_loop(kernel);
  observer_.kernel_timed(*kernel.node, steady_ns() - kernel.ran, 0, false);
  kernel.execution.reset();
}

void KernelRunner::end_loop(PendingKernel& kernel) {
  count_loop(kernel);
  kernel.node->resident->give_back(std::move(kernel.execution));
}

// On a device with asynchronous work, copies of the results are checked on the host when the stream
// has made them.
void KernelRunner::look_later(IterationState& iteration, const PlanNode& node,
                              std::span<const Value> outputs) {
  if (!dynamic_cast<const WatchedKernel*>(node.kernel)) return;
  std::vector<Value> copies;
  for (const Value& v : outputs)
    if (v.has_value() && !v.is_list()) copies.emplace_back(stream_.start_copy_to_host(v.tensor()));
  const RunState& run_state = *iteration.instance->run_state;
  std::string where = iteration.instance->parent ? "in " + tag_of(iteration) + ": " : "";
  stream_.stream().mark()->then([copies = std::move(copies), where = std::move(where), &node,
                                 fault = run_state.fault, run = run_state.run](const Status&) {
    const Status status = look(node, copies);
    if (!status.ok()) fault->report(Status(status.code(), where + status.message()), node.source);
  });
}

KernelContext KernelRunner::context(IterationState& iteration, const PlanNode& node,
                                    Value* outputs) {
  KernelContext c(
      {iteration.values.data() + node.first_input, static_cast<std::size_t>(node.inputs)},
      {outputs, static_cast<std::size_t>(node.outputs)}, *mine_.device, stream_.stream(),
      iteration.instance->run_state->run->info());
  c.set_tag(iteration.tag);
  return c;
}

void KernelRunner::measure(const PlanNode& node, std::int64_t nanoseconds,
                           std::span<const Value> outputs, std::uint64_t put, bool in_turn) {
  Cost& cost = costs_[static_cast<std::size_t>(node.index)];
  std::uint64_t bytes = 0, lists = 0;
  for (const Value& v : outputs) (v.is_list() ? lists : bytes) += bytes_of(v);
  bytes += std::min(lists, put);
  observer_.kernel_timed(node, nanoseconds, bytes, in_turn);
  // The first firings warm caches up: their least counts; later samples move the estimate slowly.
  const std::int64_t known = cost.nanoseconds.load(std::memory_order_relaxed);
  const std::int64_t now = cost.samples == 0  ? nanoseconds
                           : cost.samples < 3 ? std::min(known, nanoseconds)
                                              : known + (nanoseconds - known) / 4;
  cost.nanoseconds.store(now, std::memory_order_relaxed);
  if (cost.samples < 3) ++cost.samples;
  if (hands_over_ && cost.samples >= 2 && now >= kHeavy) has_heavy_ = true;
}

bool KernelRunner::is_light() const {
  constexpr std::int32_t kLooked = 500;
  if (mine_.nodes > kLooked || granularity_ == Granularity::op || !stream_.is_synchronous())
    return false;
  for (const FramePlan& f : mine_.frames)
    for (const PlanNode& n : f.nodes) {
      const std::int64_t ns = cost_ns(n.index);
      const bool is_short = driver_.clock().is_stepped() || (ns < kHeavy && (ns != 0 || n.scalars));
      if (n.kernel && (!is_short || !tells_its_work(plan_.program.graph, n.source))) return false;
    }
  return true;
}

// ---- outside of the turn

PendingKernel& KernelRunner::spare() {
  if (spare_.empty())
    spare_.push_back(pending_.emplace_back(std::make_unique<PendingKernel>()).get());
  PendingKernel& f = *spare_.back();
  spare_.pop_back();
  f.runner = this;
  return f;
}

PendingKernel& KernelRunner::take(IterationState& iteration, const PlanNode& node) {
  PendingKernel& f = spare();
  f.iteration = &iteration;
  f.node = &node;
  f.nanoseconds = 0;
  f.outputs.resize(static_cast<std::size_t>(node.outputs));
  return f;
}

void KernelRunner::hand_over(IterationState& iteration, const PlanNode& node) {
  RunState& run_state = *iteration.instance->run_state;
  load_bound_inputs(mine_, iteration, node);
  PendingKernel& kernel = take(iteration, node);
  if (node.resident) start_loop(kernel);
  kernel.run = run_state.run;
  kernel.began = std::chrono::nanoseconds(steady_ns());
  kernel.waits_for_worker.store(true, std::memory_order_relaxed);
  driver_.hand_over(kernel);
  ++run_state.under_way;  // its end is a message, which comes after this turn
}

void KernelRunner::dispatch_heavy(RunState& run_state) {
  if (run_state.ready.heavy() == 0) return;
  if (run_state.ready.heavy() == 1 && run_state.under_way == 0) {
    driver_.before_heavy();
    run_state.ready.push(run_state.ready.pop_heavy());
    return;
  }
  hand_over_heavy(run_state);
}

void KernelRunner::hand_over_heavy(RunState& run_state) {
  while (run_state.ready.heavy() > 0) hand_over_newest(run_state);
}

// A dead node, or one of a failed run, runs no kernel: it is fired in the turn.
void KernelRunner::hand_over_newest(RunState& run_state) {
  const ReadyNode next = run_state.ready.pop_heavy();
  const bool is_dead =
      next.iteration->awaited[static_cast<std::size_t>(next.node->place)] & IterationState::kDead;
  if (is_dead || run_state.run->is_poisoned()) run_state.ready.push(next);
  else hand_over(*next.iteration, *next.node);
}

// No thread waits for a stream: the predicate comes back as the end of a kernel.
void KernelRunner::ask_device(IterationState& iteration, const PlanNode* node,
                              const Tensor& predicate) {
  PendingKernel& kernel = spare();
  kernel.iteration = &iteration;
  kernel.node = node;
  Tensor host = stream_.start_copy_to_host(predicate);
  ++iteration.instance->run_state->under_way;
  stream_.stream().record()->then([this, &kernel, host, source = predicate,
                                   run = iteration.instance->run_state->run](const Status&) {
    kernel.outputs.resize(1);
    kernel.outputs[0] = host.reshaped(Shape{});
    count_end(kernel);
    driver_.post_self(KernelDone{&kernel});
  });
}

void KernelRunner::measure_end(const PendingKernel& kernel) {
  const PlanNode& node = *kernel.node;
  if (kernel.execution) {
    // until now, as an answer may have had it
    const std::int64_t took = steady_ns() - kernel.ran;
    measure(node, took, kernel.outputs, kernel.put, false);
    observer_.record_loop(kernel, took);
  } else if (kernel.nanoseconds > 0) {
    measure(node, kernel.nanoseconds, kernel.outputs, kernel.put, false);
    observer_.record_kernel(*kernel.iteration, node, kernel.ran, kernel.nanoseconds);
  } else if (kernel.began.count() > 0) {
    const std::int64_t took = steady_ns() - kernel.began.count();
    std::int64_t& longest = costs_[static_cast<std::size_t>(node.index)].longest;
    if (kernel.status.ok()) longest = std::max(longest, took);
    observer_.record_ended(kernel, took);
  }
}

std::vector<const PendingKernel*> KernelRunner::under_way() const {
  const std::unordered_set<const PendingKernel*> unused(spare_.begin(), spare_.end());
  std::vector<const PendingKernel*> all;
  for (const auto& kernel : pending_)
    if (!unused.contains(kernel.get())) all.push_back(kernel.get());
  return all;
}

void KernelRunner::run_elsewhere(PendingKernel& kernel) {
  Ref<Run> run = kernel.run;  // stays until the kernel has returned
  kernel.waits_for_worker.store(false, std::memory_order_relaxed);
  if (kernel.execution) {
    if (!advance_loop(kernel)) return;
    kernel.nanoseconds = std::max<std::int64_t>(1, steady_ns() - kernel.ran);
    count_end(kernel);
    driver_.post_self(KernelDone{&kernel});
    return;
  }
  KernelContext c = context(*kernel.iteration, *kernel.node, kernel.outputs.data());
  c.set_sink(this, &kernel);
  kernel.put = kernel.node->makes_list ? put_into_lists(*kernel.iteration, *kernel.node) : 0;
  const std::int64_t start = steady_ns();
  Under under(&kernel);
  try {
    kernel.node->kernel->run(c);
  } catch (...) {
    if (c.was_deferred() && !under.is_dropped) return;  // its Completion ends it, or has ended it
    kernel.status = Status::from_current_exception();
  }
  if (c.was_deferred() && !under.is_dropped) return;
  if (under.is_dropped && kernel.status.ok()) kernel.status = std::move(under.status);
  kernel.ran = start;
  kernel.nanoseconds = std::max<std::int64_t>(1, steady_ns() - start);
  count_end(kernel);
  driver_.post_self(KernelDone{&kernel});
}

void KernelRunner::complete(void* ticket, Status status, std::span<Value> outputs) {
  if (Under::drops(ticket, status)) return;
  auto& kernel = *static_cast<PendingKernel*>(ticket);
  kernel.status = std::move(status);
  if (plan_.check_finite && kernel.status.ok()) kernel.status = look(*kernel.node, outputs);
  kernel.nanoseconds = 0;
  kernel.outputs.clear();
  for (Value& v : outputs) kernel.outputs.push_back(std::move(v));
  count_end(kernel);
  driver_.post_self(KernelDone{&kernel});
}

}  // namespace troupe
