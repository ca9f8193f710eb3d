// Makes an engine's snapshots, and finds why a run has not ended within its timeout.
#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/actors/executor/trace_file.hpp>
#include <troupe/actors/runtime/user_actor.hpp>

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>

namespace troupe {

// The first call asks the run's partitions and the other nodes for their waits, which the caller's
// error names. The second one, soon after, ends the run with the answers. A run over several nodes
// has a call before these, ahead of its timeout, that finds out which nodes answer.
void EngineImpl::expire(std::uint64_t id) {
  std::optional<RunTable::Expired> expired = runs_.expire(id, [this, id] { answered(id); });
  if (!expired) return;
  Run& run = *expired->run;
  if (expired->is_early)
    return peers_->ask_about(run, [this, id](const RunSnapshot&) { runs_.add_early_answer(id); });
  if (!expired->is_new)
    return time_out(run, expired->partitions, expired->here->answers(), expired->elsewhere);
  if (expired->nodes > 0)
    peers_->ask_about(run, [this, id](const RunSnapshot& part) {
      if (runs_.add_answer(id, part)) answered(id);
    });
  std::size_t place = 0;
  for (const auto& partition : expired->partitions)
    if (partition) partition->send(Inspect{expired->here, place++});
}

// The last answer ends the run.
void EngineImpl::answered(std::uint64_t id) {
  if (runs_.is_answered(id)) expire(id);
}

// Returns true if every partition of the plan has reported its totals of the run. False for a part
// of a plan, which does not list all partitions.
static bool all_have_said(const RunSnapshot& run, const Plan& plan) {
  return !plan.is_part() &&
         std::all_of(
             plan.partitions.begin(), plan.partitions.end(), [&](const PartitionPlan& of_plan) {
               return std::any_of(
                   run.partitions.begin(), run.partitions.end(), [&](const PartitionSnapshot& p) {
                     return p.device == of_plan.name && p.has_answered && !p.runs.empty();
                   });
             });
}

void EngineImpl::time_out(Run& run, const std::vector<LeanRef<PartitionActor>>& partitions,
                          const std::vector<PartitionSnapshot>& answers,
                          const std::vector<RunSnapshot>& elsewhere) {
  std::string text = "the run's time-out has passed";
  constexpr std::size_t kMost = 4;
  RunSnapshot all = snapshot_of(run, partitions, answers);
  for (const RunSnapshot& part : elsewhere) add_part(all, part);
  if (run.troupe->remote)
    for (const std::string& node : all.other_nodes)
      all.silent.push_back({node, "it was asked what it waits for"});
  all.is_whole = all_have_said(all, run.plan());
  const std::vector<std::string> causes = diagnose(all);
  for (std::size_t i = 0; i < std::min(causes.size(), kMost); ++i)
    text += (i == 0 ? ": " : "; ") + causes[i];
  if (causes.size() > kMost) text += fmt::format("; and {} more", causes.size() - kMost);
  fail(run, Status(Code::deadline_exceeded, text));
}

RunSnapshot EngineImpl::snapshot_of(const Run& run,
                                    const std::vector<LeanRef<PartitionActor>>& partitions,
                                    const std::vector<PartitionSnapshot>& answers) {
  RunSnapshot s;
  s.run = run.info().id;
  s.step = run.info().step;
  if (run.is_named.load(std::memory_order_acquire))
    s.owner = run.key.owner, s.number = run.key.number;
  s.plan = run.plan().name;
  s.queues = run.plan().queues;
  s.for_so_long = clock_.now() - run.started;
  s.is_ending = run.is_settled();
  const Plan& plan = run.plan();
  std::set<std::int32_t> not_asked;  // which take part, and have not left
  for (std::size_t i = 0; i < plan.nodes.size(); ++i)
    if (static_cast<std::int32_t>(i) != plan.here) not_asked.insert(static_cast<std::int32_t>(i));
  std::size_t place = 0;
  for (std::size_t i = 0; i < partitions.size(); ++i) {
    const auto& partition = partitions[i];
    const std::optional<RunTotals> done = run.done_by(i);
    PartitionSnapshot p;
    if (partition) p = answers[place++];
    else if (!done) continue;
    // the partition has left the run, possibly since it answered: its totals replace its answer
    if (done) {
      not_asked.erase(plan.partitions[i].node);
      p.device = plan.partitions[i].name;
      p.has_answered = true;
      p.runs.clear();
      RunPart& part = p.runs.emplace_back();
      part.run = s.run;
      part.fired = done->fired, part.sent = done->sent, part.received = done->received;
    } else if (!p.has_answered) {
      const Partition& silent = partition->partition();
      p.device = silent.plan().name;
      p.busy_with = silent.observer().busy_with();
      p.is_busy_for_another = !p.busy_with.empty() && silent.observer().busy_for() != s.run;
      if (p.busy_with.empty()) add_user_code(p, run, silent.plan());
      if (std::optional<RunPart> said;
          p.is_busy_for_another && (said = silent.observer().cached_if_current(s.run))) {
        p.has_answered = true;
        // without cut edges nothing can have come since, so the answer is current
        p.is_busy_for_another = !silent.plan().receives.empty() || !silent.plan().sends.empty();
        p.runs.push_back(std::move(*said));
      }
    }
    std::erase_if(p.runs, [&](const RunPart& part) { return part.run != s.run; });
    if (options_.deterministic)  // time is virtual: real durations are meaningless
      for (RunPart& part : p.runs)
        for (Wait& w : part.waits) w.for_so_long = {};
    s.partitions.push_back(std::move(p));
  }
  for (const std::int32_t node : not_asked)
    s.other_nodes.push_back(plan.nodes[static_cast<std::size_t>(node)]);
  s.is_whole = all_have_said(s, plan);
  // Up to here `s.run` was this engine's number; other nodes use the owner's number.
  s.run = run.number();
  for (PartitionSnapshot& p : s.partitions)
    for (RunPart& part : p.runs) part.run = s.run;
  return s;
}

// Adds the wait for a user's actor that occupies the worker which its partition needs. The
// partition itself cannot report it.
void EngineImpl::add_user_code(PartitionSnapshot& silent, const Run& run,
                               const PartitionPlan& plan) {
  const Graph& graph = run.plan().program.graph;
  std::lock_guard lock(hosted_mutex_);
  for (const auto& weak : hosted_) {
    const std::shared_ptr<AtWork> at_work = weak.lock();
    const std::int64_t since = at_work ? at_work->since_ns.load(std::memory_order_relaxed) : 0;
    if (since == 0 || at_work->run.load(std::memory_order_relaxed) != run.info().id) continue;
    for (const FramePlan& frame : plan.frames)
      for (const PlanNode& node : frame.nodes) {
        const std::int32_t state = graph.node(node.source).state;
        if (state < 0 ||
            graph.states()[static_cast<std::size_t>(state)].kind != StateSpec::Kind::actor ||
            graph.states()[static_cast<std::size_t>(state)].name != at_work->name)
          continue;
        Wait w;
        w.node = run.plan().number_of(node.source);
        w.what = graph.describe(node.source);
        w.state = fmt::format("actor '{}'", at_work->name);
        w.for_so_long = std::chrono::nanoseconds(std::max<std::int64_t>(1, steady_ns() - since));
        w.longest = std::chrono::nanoseconds(at_work->longest_ns.load(std::memory_order_relaxed));
        if (const auto& actor = graph.states()[static_cast<std::size_t>(state)].actor)
          w.holds_worker = !actor->options.blocks;
        if (silent.runs.empty()) silent.runs.emplace_back().run = run.info().id;
        silent.runs.back().waits.push_back(std::move(w));
      }
  }
}

EngineSnapshot EngineImpl::snapshot(std::chrono::nanoseconds patience) {
  EngineSnapshot s;
  s.node = node();
  s.workers = pool_->size();
  s.devices = devices_.snapshot(node());
  const std::vector<Ref<Run>> runs = runs_.live();
  s.recent = log_.recent();
  s.errors = log_.errors();
  s.ended_by = endings_.endings();
  for (const auto& compiled : plans()) {
    const Plan& plan = *compiled->troupe.plan;
    PlanSnapshot& p = s.plans.emplace_back();
    p.name = plan.name;
    p.nodes = plan.nodes;
    p.actors = static_cast<std::uint64_t>(plan.program.graph.size());
    for (const Node& n : plan.program.graph.nodes()) p.edges += n.inputs.size() + n.controls.size();
    p.made_ns = compiled->made_ns;
    p.started = compiled->started.load(std::memory_order_relaxed);
    p.ended = compiled->ended.load(std::memory_order_relaxed);
    p.failed = compiled->failed.load(std::memory_order_relaxed);
    p.durations = compiled->durations.durations();
  }
  std::vector<std::shared_ptr<Inspection>> inspections;
  for (const Ref<Run>& run : runs) inspections.push_back(ask(run->troupe->partitions, {}));
  wait_for(inspections, patience);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    s.runs.push_back(snapshot_of(*runs[i], runs[i]->troupe->partitions, inspections[i]->answers()));
    s.runs.back().is_owned = runs[i]->plan().name.owner == s.node;
  }
  return s;
}

std::shared_ptr<Inspection> EngineImpl::ask(const std::vector<LeanRef<PartitionActor>>& partitions,
                                            Inspect question,
                                            std::function<void(Inspection&)> on_complete) {
  const auto here = static_cast<std::size_t>(
      std::count_if(partitions.begin(), partitions.end(), [](const auto& p) { return bool(p); }));
  // the partition that answers last holds the inspection
  auto self = std::make_shared<std::weak_ptr<Inspection>>();
  question.inspection = on_complete ? std::make_shared<Inspection>(
                                          here, [self, on_complete] { on_complete(*self->lock()); })
                                    : std::make_shared<Inspection>(here);
  *self = question.inspection;
  question.place = 0;
  if (question.asks_of_events || question.asks_of_actors || question.trace == Inspect::Trace::on)
    question.clock = TickClock::now();
  for (const auto& partition : partitions) {
    if (!partition) continue;
    partition->send(question);
    ++question.place;
  }
  return question.inspection;
}

void EngineImpl::wait_for(const std::vector<std::shared_ptr<Inspection>>& inspections,
                          std::chrono::nanoseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const auto all_are_complete = [&] {
    return std::all_of(inspections.begin(), inspections.end(),
                       [](const auto& i) { return i->is_complete(); });
  };
  while (options_.deterministic && !all_are_complete() && pool_->step()) {}
  for (const auto& inspection : inspections)
    inspection->wait(std::max<std::chrono::nanoseconds>(deadline - std::chrono::steady_clock::now(),
                                                        std::chrono::nanoseconds(0)));
}

// How full the queue is that an actor works with.
void EngineImpl::add_queue(ActorCounters& counters, const CompiledPlan& compiled) {
  const Plan& plan = *compiled.troupe.plan;
  const Graph& graph = plan.program.graph;
  const std::int32_t state = graph.node(plan.node_of_number(counters.node)).state;
  if (state < 0) return;
  const StateSpec& spec = graph.states()[static_cast<std::size_t>(state)];
  if (spec.kind != StateSpec::Kind::fifo_queue && spec.kind != StateSpec::Kind::shuffling_queue)
    return;
  const Ref<State> keep = (compiled.states ? *compiled.states : states_.own()).find(spec.name);
  const auto* queue = dynamic_cast<const QueueState*>(keep.get());
  counters.capacity = static_cast<std::uint64_t>(spec.capacity);
  if (queue) counters.queued = static_cast<std::uint64_t>(queue->size());
}

// Returns the answers. A partition that has not answered has an entry with its device.
std::vector<PartitionSnapshot> EngineImpl::answers_of(const CompiledPlan& compiled,
                                                      const Inspection& inspection) {
  std::vector<PartitionSnapshot> answers = inspection.answers();
  std::size_t place = 0;
  for (const auto& partition : compiled.troupe.partitions)
    if (partition && answers[place++].device.empty())
      answers[place - 1].device = partition->partition().plan().name;
  for (PartitionSnapshot& p : answers)
    for (ActorCounters& c : p.actors) add_queue(c, compiled);
  return answers;
}

std::vector<PartitionSnapshot> EngineImpl::ask(const PlanName& plan, const Inspect& question,
                                               std::chrono::nanoseconds patience) {
  for (const auto& compiled : plans()) {
    if (compiled->troupe.plan->name != plan) continue;
    const std::shared_ptr<Inspection> inspection = ask(compiled->troupe.partitions, question);
    wait_for({inspection}, patience);
    return answers_of(*compiled, *inspection);
  }
  throw Error(Code::not_found, fmt::format("node '{}' has no plan '{}'", node(), plan.text()));
}

std::vector<std::pair<std::shared_ptr<CompiledPlan>, std::vector<PartitionSnapshot>>>
EngineImpl::ask_all(const Inspect& question, std::chrono::nanoseconds patience) {
  const std::vector<std::shared_ptr<CompiledPlan>> all = plans();
  std::vector<std::shared_ptr<Inspection>> inspections;
  for (const auto& compiled : all)
    inspections.push_back(ask(compiled->troupe.partitions, question));
  wait_for(inspections, patience);
  std::vector<std::pair<std::shared_ptr<CompiledPlan>, std::vector<PartitionSnapshot>>> answers;
  for (std::size_t i = 0; i < all.size(); ++i)
    answers.emplace_back(all[i], answers_of(*all[i], *inspections[i]));
  return answers;
}

void EngineImpl::write_events(const Run& run, const EndedRun& end,
                              const std::shared_ptr<CompiledPlan>& compiled,
                              const std::string& path, Inspect::Trace trace,
                              std::shared_ptr<std::promise<Status>> traced_by) {
  Inspect question{};
  question.asks_of_events = true;
  question.trace = trace;
  question.tracer = {run.info().id};
  // in real time, like the recorded events, even if the engine's time is virtual
  const std::int64_t took_ns = (std::chrono::steady_clock::now() - run.began).count();
  question.since_ns = trace == Inspect::Trace::off ? end.ended_ns - took_ns : 0;
  TracedRun traced{node(), fmt::format("{}/{}", end.plan.owner, end.run), end.ended_ns - took_ns,
                   took_ns, end.error};
  ask(compiled->troupe.partitions, question,
      log_.writer(std::move(traced), end, compiled, path, std::move(traced_by)));
}

}  // namespace troupe
