// The answer of a partition to an inspection: its runs, and their waits.
#include <troupe/actors/executor/partition_observer.hpp>

#include <algorithm>
#include <optional>
#include <unordered_set>

#include <fmt/format.h>

#include <troupe/actors/executor/kernel_runner.hpp>
#include <troupe/actors/observe/inspection.hpp>
#include <troupe/actors/observe/queue_users.hpp>
#include <troupe/ops/graph/actor_node.hpp>

namespace troupe {

namespace {

const char* name_of(StateSpec::Kind kind) {
  switch (kind) {
    case StateSpec::Kind::variable: return "variable";
    case StateSpec::Kind::fifo_queue: return "queue";
    case StateSpec::Kind::shuffling_queue: return "shuffling queue";
    case StateSpec::Kind::actor: return "actor";
    case StateSpec::Kind::console: return "console";
  }
  return "state";
}

}  // namespace

std::string PartitionObserver::busy_with() const {
  const PlanNode* node = running_.load(std::memory_order_relaxed);
  return node ? plan_.program.graph.describe(node->source) : std::string();
}

bool PartitionObserver::has_resident_loop(const RunState& run_state, const PartitionView& view) {
  const auto under_way = view.kernels.under_way();
  return std::any_of(under_way.begin(), under_way.end(), [&](const PendingKernel* kernel) {
    return kernel->execution && kernel->iteration->instance->run_state == &run_state;
  });
}

struct PartitionObserver::CachedAnswer {
  struct Part {
    RunPart part;
    // lives as long as the partition; it may be another run's later, which changes `handled`
    const RunState* run_state;
    std::uint64_t handled, ended;
  };
  std::vector<Part> parts;
  std::int64_t at_ns = steady_ns();
};

void PartitionObserver::answer(const Inspect& question, const PartitionView& view) {
  PartitionSnapshot s;
  s.device = mine_.name;
  tracer_.start();
  auto parts = std::make_shared<CachedAnswer>();
  std::erase_if(resident_tracers_, [&](const auto& known) {
    const auto under_way = view.kernels.under_way();
    return std::none_of(under_way.begin(), under_way.end(), [&](const PendingKernel* kernel) {
      return kernel == known.first.first && kernel->ran == known.first.second;
    });
  });
  for (const RunState* r : view.runs.active()) {
    s.runs.push_back(part_of(*r, view));
    // which go on without a message to this partition
    if (has_resident_loop(*r, view)) continue;
    parts->parts.push_back(
        {s.runs.back(), r, r->handled.load(std::memory_order_relaxed), r->ended});
  }
  {
    std::shared_ptr<const CachedAnswer> said = std::move(parts);
    std::lock_guard lock(said_mutex_);
    said_.swap(said);
  }
  if (recorder_.traces()) recorder_.expire(driver_.clock().at(ticks()));
  if (question.asks_of_actors) {
    const ResidentIterations iterations = resident_iterations();
    s.actors = actor_counters(view, iterations);
    s.edges = edge_counters();
    s.loops = loop_snapshots(view, question.clock, iterations);
  }
  if (question.asks_of_events) {
    s.events = recorder_.since(question.since_ns, question.clock);
    for (RecordedEvent& e : s.events) e.node = plan_.number_of(e.node);
    s.dropped_events = recorder_.dropped();
    s.thinned_events = recorder_.thinned();
    s.whole_since_ns = recorder_.whole_since(question.clock);
    if (question.watches) recorder_.watch(question.clock);
  }
  // ns; a client traces for a minute at most, and may be gone before it ends the trace
  constexpr std::int64_t kLongestTrace = 75'000'000'000;
  if (question.trace != Inspect::Trace::as_it_is)
    recorder_.trace(
        question.trace == Inspect::Trace::on, question.tracer,
        driver_.clock().at(ticks()) + driver_.clock().length_of(kLongestTrace, question.clock));
  looks_closer_ = tracer_.is_active() || recorder_.traces();
  question.inspection->answer(question.place, std::move(s));
  heard_ = 0;  // the answer is no part of a turn
}

// The argument is in INSPECTION.md.
std::optional<RunPart> PartitionObserver::cached_if_current(std::uint64_t run) const {
  std::shared_ptr<const CachedAnswer> said;
  {
    std::lock_guard lock(said_mutex_);
    said = said_;
  }
  if (!said) return std::nullopt;
  const auto it = std::find_if(said->parts.begin(), said->parts.end(),
                               [&](const CachedAnswer::Part& p) { return p.part.run == run; });
  if (it == said->parts.end() || it->part.ready > 0) return std::nullopt;
  if (it->run_state->posted.load(std::memory_order_relaxed) != it->ended ||
      it->run_state->handled.load(std::memory_order_relaxed) != it->handled)
    return std::nullopt;
  RunPart part = it->part;
  for (Wait& w : part.waits)
    if (w.for_so_long.count() > 0)
      w.for_so_long += std::chrono::nanoseconds(steady_ns() - said->at_ns);
  return part;
}

// Finds the waits of a run at queues which no node of the run can end any more. Data that the waits
// share is computed once a snapshot, and only if there is such a wait.
class PartitionObserver::OrphanWait {
 public:
  OrphanWait(PartitionObserver& observer, const RunState& run_state, const PartitionView& view)
      : observer_(observer), run_state_(run_state), view_(view) {}

  bool has_no_counterpart(const PendingKernel& kernel) {
    const std::int32_t source = kernel.node->source;
    const auto& others = may_end(source, kernel.iteration->instance->number == 0);
    return std::all_of(others.begin(), others.end(),
                       [&](std::int32_t other) { return has_ended(other); });
  }

 private:
  const std::vector<std::int32_t>& may_end(std::int32_t source, bool is_outermost) {
    if (observer_.plan_.is_part()) {
      static const std::vector<std::int32_t> unknown{-1};
      const auto found = observer_.plan_.ends_queue_waits.find(source);
      return found != observer_.plan_.ends_queue_waits.end() ? found->second : unknown;
    }
    const auto [it, is_new] = observer_.may_end_.try_emplace(source);
    if (is_new) {
      if (!users_) users_.emplace(observer_.plan_.program.graph);
      it->second = users_->may_end(source, is_outermost);
    }
    return it->second;
  }

  // True if a node outside of all loops and functions has ended in this run, live or dead. False if
  // the node is in another partition.
  bool has_ended(std::int32_t source) {
    if (!is_known_) find_under_way();
    const auto found = observer_.by_source_.find(source);
    if (found == observer_.by_source_.end() || !outside_) return false;
    const PlanNode* const node = found->second;
    const std::vector<PlanNode>& nodes = outside_->instance->frame->nodes;
    const auto place = static_cast<std::size_t>(node->place);
    return place < nodes.size() && &nodes[place] == node &&
           (outside_->awaited[place] & IterationState::kCount) == 0 && !under_way_.contains(node);
  }

  void find_under_way() {
    is_known_ = true;
    observer_.find_sources();
    const FrameState& root = *run_state_.root;
    outside_ = root.at(root.oldest);
    run_state_.ready.each([&](const ReadyNode& one) {
      if (one.iteration == outside_) under_way_.insert(one.node);
    });
    for (const PendingKernel* kernel : view_.kernels.under_way())
      if (kernel->iteration == outside_) under_way_.insert(kernel->node);
  }

  PartitionObserver& observer_;
  const RunState& run_state_;
  const PartitionView& view_;
  std::optional<QueueUsers> users_;
  bool is_known_ = false;
  const IterationState* outside_ = nullptr;  // the iteration outside of all loops and functions
  // nodes in `outside_` that can fire, or have begun and not ended
  std::unordered_set<const PlanNode*> under_way_;
};

// Describes the loop by the observations since the last request, and starts more of them.
void PartitionObserver::trace_resident(const PendingKernel& kernel, OpenLoop& loop) {
  constexpr int kObserved = 1000;  // iterations
  auto& tracer = resident_tracers_[{&kernel, kernel.ran}];
  if (!tracer)
    tracer = std::make_shared<ResidentTracer>(plan_.program.graph,
                                              plan_.program.graph.node(kernel.node->source),
                                              kernel.node->resident->program());
  tracer->describe(loop);
  tracer->start();
  kernel.execution->observe(tracer, kObserved);
}

// Resident loops are reported like loops whose nodes fire, with one open iteration. The run counts
// their iterations as firings.
void PartitionObserver::add_resident_loops(const PendingKernel& kernel, RunPart& part) {
  const FrameState& around = *kernel.iteration->instance;
  std::string tag = around.parent ? tag_of(*kernel.iteration) : std::string();
  int depth = around.frame->depth;
  for (const ResidentRun::Open& open : kernel.execution->open()) {
    OpenLoop& loop = part.loops.emplace_back();
    loop.loop = open.loop->name;
    loop.depth = ++depth;
    loop.tag = tag;
    loop.execution = static_cast<std::uint64_t>(kernel.ran);
    loop.first = loop.last = open.iteration;
    loop.predicate = open.loop->predicate;
    loop.predicate_node = plan_.number_of(kernel.node->source);
    loop.is_endless = open.loop->is_endless;
    if (open.loop == &kernel.node->resident->program().loops()[0]) {
      part.fired += static_cast<std::uint64_t>(open.iteration);
      trace_resident(kernel, loop);
    }
    tag += fmt::format("{}iteration {} of loop '{}'", tag.empty() ? "" : ", ", open.iteration,
                       open.loop->name);
  }
}

RunPart PartitionObserver::part_of(const RunState& run_state, const PartitionView& view) {
  RunPart part;
  part.run = run_state.run->info().id;
  part.fired = run_state.fired;
  part.sent = run_state.sent;
  part.received = run_state.received;
  part.ready = run_state.ready.size();
  const auto add_wait = [&](Wait::Kind kind, std::int32_t source, const IterationState& iteration,
                            std::string from) -> Wait* {
    if (part.waits.size() == RunPart::kMostWaits) {
      ++part.more_waits;
      return nullptr;
    }
    const Node& node = plan_.program.graph.node(source);
    Wait& w = part.waits.emplace_back();
    w.kind = kind;
    w.node = plan_.number_of(source);
    w.what = plan_.program.graph.describe(source);
    if (node.state >= 0) {
      const StateSpec& state = plan_.program.graph.states()[static_cast<std::size_t>(node.state)];
      w.state = fmt::format("{} '{}'", name_of(state.kind), state.name);
      w.puts = node.op->effect == Effect::enqueue;
      w.holds_worker =
          state.kind == StateSpec::Kind::actor && state.actor && !state.actor->options.blocks;
    }
    w.tag = tag_of(iteration);
    w.from = std::move(from);
    return &w;
  };

  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  OrphanWait lone(*this, run_state, view);
  for (const PendingKernel* kernel : view.kernels.under_way()) {
    if (kernel->iteration->instance->run_state != &run_state) continue;
    const bool is_predicate = !kernel->node || kernel->node->kind == PlanNode::Kind::switch_;
    const std::int32_t source = kernel->node
                                    ? kernel->node->source
                                    : tracer_.predicate_of(*kernel->iteration->instance->frame);
    if (source < 0) continue;
    if (kernel->execution) {
      add_resident_loops(*kernel, part);
      continue;
    }
    Wait* const w = add_wait(is_predicate ? Wait::Kind::device : Wait::Kind::kernel, source,
                             *kernel->iteration, {});
    if (!w || is_predicate) continue;
    // it is not at its queue yet, nor with its actor
    if (kernel->waits_for_worker.load(std::memory_order_relaxed)) {
      w->state.clear(), w->holds_worker = false;
      continue;
    }
    if (kernel->began.count() > 0)
      w->for_so_long = now - kernel->began,
      w->longest = std::chrono::nanoseconds(view.kernels.longest_ns(*kernel->node));
    w->is_alone = is_at_queue(*w) && lone.has_no_counterpart(*kernel);
  }

  for (const auto& instance : view.frames.instances()) {
    if (instance->run_state != &run_state) continue;
    if (instance->parent && !instance->frame->function) {
      OpenLoop& loop = part.loops.emplace_back();
      loop.loop = instance->frame->name;
      loop.depth = instance->frame->depth;
      loop.tag = tag_of(*instance->parent);
      loop.execution = instance->execution;
      loop.first = instance->oldest;
      loop.last = instance->opened - 1;
      loop.window = instance->frame->window;
      if (const std::int32_t predicate = tracer_.predicate_of(*instance->frame); predicate >= 0) {
        loop.predicate = plan_.program.graph.describe(predicate),
        loop.predicate_node = plan_.number_of(predicate);
        tracer_.describe(*instance, loop);
      }
    }
    for (std::int64_t n = instance->oldest; n < instance->opened; ++n) {
      const IterationState* iteration = instance->at(n);
      if (!iteration) continue;
      for (const PartitionPlan::Receive& receive : mine_.receives)
        if (receive.frame == instance->number && receive.says != PartitionPlan::Says::over &&
            !instance->has_received(n, receive))
          add_wait(Wait::Kind::token, receive.source, *iteration,
                   plan_.partitions[static_cast<std::size_t>(receive.partition)].name);
    }
  }
  const auto add_grant = [&](const RunState::Held& held, std::int32_t ahead) {
    const PartitionPlan::Send& send = mine_.sends[static_cast<std::size_t>(held.send)];
    add_wait(Wait::Kind::grant, send.source,
             *held.iteration->instance->at(held.iteration->number + ahead),
             plan_.partitions[static_cast<std::size_t>(send.partition)].name);
  };
  for (const RunState::Held& held : run_state.held) add_grant(held, 0);
  if (run_state.calls.is_drained)
    for (const PartitionPlan::Receive& receive : mine_.receives)
      if (receive.says == PartitionPlan::Says::over && !run_state.calls.is_over(receive.place))
        add_wait(Wait::Kind::token, receive.source, run_state.calls.elsewhere,
                 plan_.partitions[static_cast<std::size_t>(receive.partition)].name);
  // last, so that every edge is named before one edge takes the room that is left
  for (const RunState::Held& held : run_state.held)
    for (std::int32_t i = 1; i < held.times; ++i) add_grant(held, i);
  std::stable_sort(part.loops.begin(), part.loops.end(),
                   [](const OpenLoop& a, const OpenLoop& b) { return a.depth < b.depth; });
  return part;
}

}  // namespace troupe
