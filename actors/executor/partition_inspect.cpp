// What a partition says of itself: which runs it has, and what each of them waits for.
#include <troupe/actors/executor/partition.hpp>

#include <algorithm>
#include <optional>
#include <unordered_set>

#include <fmt/format.h>

#include <troupe/actors/observe/inspection.hpp>
#include <troupe/ops/graph/actor_node.hpp>

namespace troupe {

// Of calls that are nested deep the innermost.
std::string tag_of(const Iteration& iteration) {
  constexpr int kNamed = 8;
  std::string tag;
  int named = 0;
  for (const Iteration* it = &iteration; it->instance->parent; it = it->instance->parent) {
    if (named++ == kNamed) return "..., " + tag;
    const Instance& instance = *it->instance;
    const std::string here =
        !instance.frame->function
            ? fmt::format("iteration {} of loop '{}'", it->number, instance.frame->name)
        : instance.caller
            ? fmt::format("a call of '{}'", instance.frame->name)
            : fmt::format("a call of '{}', {} deep", instance.frame->name, instance.depth);
    tag = tag.empty() ? here : here + ", " + tag;
  }
  return tag;
}

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

std::string Partition::busy_with() const {
  const PlanNode* node = running_.load(std::memory_order_relaxed);
  return node ? plan_->program.graph.describe(node->source) : std::string();
}

struct Partition::Said {
  struct Part {
    RunPart part;
    // lives as long as the partition, and may be another run's by then, which `handled` tells
    const Record* record;
    std::uint64_t handled, ended;
  };
  std::vector<Part> parts;
  std::int64_t at_ns = steady_ns();
};

void Partition::answer(const Inspect& question) {
  flush();  // what was posted is counted when it goes: later, `sent` would grow without `handled`
  PartitionSnapshot s;
  s.device = mine_.name;
  if (mine_.frames.size() > 1) {
    constexpr int kObserved = 4096;  // firings, and a few iterations of a large loop
    constexpr std::size_t kRead = 4 << 20;
    observes_ = kObserved + 8 * mine_.nodes;
    may_read_ = kRead;
    if (deciding_.empty()) follow_predicates();
  }
  auto parts = std::make_shared<Said>();
  for (const Record* r : active_) {
    s.runs.push_back(part_of(*r));
    parts->parts.push_back(
        {s.runs.back(), r, r->handled.load(std::memory_order_relaxed), r->ended});
  }
  {
    std::shared_ptr<const Said> said = std::move(parts);
    std::lock_guard lock(said_mutex_);
    said_.swap(said);
  }
  if (recorder_.traces()) recorder_.expire(driver_.time_at(ticks()));
  if (question.asks_of_actors)
    s.actors = actor_counters(), s.edges = edge_counters(),
    s.loops = loop_snapshots(question.clock);
  if (question.asks_of_events) {
    s.events = recorder_.since(question.since_ns, question.clock);
    for (RecordedEvent& e : s.events) e.node = plan_->number_of(e.node);
    s.dropped_events = recorder_.dropped();
    s.thinned_events = recorder_.thinned();
    s.whole_since_ns = recorder_.whole_since(question.clock);
    if (question.watches) recorder_.watch(question.clock);
  }
  // ns: who asks for one from outside asks for a minute at most, and may be gone then
  constexpr std::int64_t kLongestTrace = 75'000'000'000;
  if (question.trace != Inspect::Trace::as_it_is)
    recorder_.trace(question.trace == Inspect::Trace::on, question.tracer,
                    driver_.time_at(ticks()) + driver_.time_of(kLongestTrace, question.clock));
  looks_closer_ = observes_ > 0 || recorder_.traces();
  question.inspection->answer(question.place, std::move(s));
}

// The argument is in INSPECTION.md.
std::optional<RunPart> Partition::stands(std::uint64_t run) const {
  std::shared_ptr<const Said> said;
  {
    std::lock_guard lock(said_mutex_);
    said = said_;
  }
  if (!said) return std::nullopt;
  const auto it = std::find_if(said->parts.begin(), said->parts.end(),
                               [&](const Said::Part& p) { return p.part.run == run; });
  if (it == said->parts.end() || it->part.ready > 0) return std::nullopt;
  if (it->record->posted.load(std::memory_order_relaxed) != it->ended ||
      it->record->handled.load(std::memory_order_relaxed) != it->handled)
    return std::nullopt;
  RunPart part = it->part;
  for (Wait& w : part.waits)
    if (w.for_so_long.count() > 0)
      w.for_so_long += std::chrono::nanoseconds(steady_ns() - said->at_ns);
  return part;
}

// Which waits of a run at queues nothing of it can end any more. What they have in common is found
// once a look, and only where somebody waits at one.
class Partition::Lone {
 public:
  Lone(Partition& partition, const Record& record) : partition_(partition), record_(record) {}

  bool is_alone(const Firing& firing) {
    const std::int32_t source = firing.node->source;
    const auto& others = may_end(source, firing.iteration->instance->number == 0);
    return std::all_of(others.begin(), others.end(),
                       [&](std::int32_t other) { return has_ended(other); });
  }

 private:
  const std::vector<std::int32_t>& may_end(std::int32_t source, bool is_outermost) {
    if (partition_.plan_->is_part()) {
      static const std::vector<std::int32_t> somebody{-1};
      const auto found = partition_.plan_->ends_queue_waits.find(source);
      return found != partition_.plan_->ends_queue_waits.end() ? found->second : somebody;
    }
    const auto [it, is_new] = partition_.may_end_.try_emplace(source);
    if (is_new) {
      if (!users_) users_.emplace(partition_.plan_->program.graph);
      it->second = users_->may_end(source, is_outermost);
    }
    return it->second;
  }

  // Has a node that is outside of all loops and functions ended in this run, alive or dead? That is
  // known of those in this partition.
  bool has_ended(std::int32_t source) {
    if (!is_known_) find_under_way();
    const auto found = partition_.by_source_.find(source);
    if (found == partition_.by_source_.end() || !outside_) return false;
    const PlanNode* const node = found->second;
    const std::vector<PlanNode>& nodes = outside_->instance->frame->nodes;
    const auto place = static_cast<std::size_t>(node->place);
    return place < nodes.size() && &nodes[place] == node &&
           (outside_->awaited[place] & Iteration::kCount) == 0 && !under_way_.contains(node);
  }

  void find_under_way() {
    is_known_ = true;
    partition_.find_sources();
    const Instance& root = *record_.root;
    outside_ = root.ring[static_cast<std::size_t>(root.oldest) & (root.ring.size() - 1)];
    for (const auto* ready : {&record_.ready, &record_.heavy, &record_.first, &record_.last})
      for (const Record::Ready& one : *ready)
        if (one.iteration == outside_) under_way_.insert(one.node);
    const std::unordered_set<const Firing*> spare(partition_.spare_.begin(),
                                                  partition_.spare_.end());
    for (const auto& firing : partition_.firings_)
      if (!spare.contains(firing.get()) && firing->iteration == outside_)
        under_way_.insert(firing->node);
  }

  Partition& partition_;
  const Record& record_;
  std::optional<QueueUsers> users_;
  bool is_known_ = false;
  const Iteration* outside_ = nullptr;  // of all loops and functions
  // there: can fire, or has begun, and has not ended
  std::unordered_set<const PlanNode*> under_way_;
};

RunPart Partition::part_of(const Record& record) {
  RunPart part;
  part.run = record.run->info().id;
  part.fired = record.fired;
  part.sent = record.sent;
  part.received = record.received;
  part.ready = record.ready.size() + record.heavy.size() + record.first.size() + record.last.size();
  const auto add_wait = [&](Wait::Kind kind, std::int32_t source, const Iteration& iteration,
                            std::string from) -> Wait* {
    if (part.waits.size() == RunPart::kMostWaits) {
      ++part.more_waits;
      return nullptr;
    }
    const Node& node = plan_->program.graph.node(source);
    Wait& w = part.waits.emplace_back();
    w.kind = kind;
    w.node = plan_->number_of(source);
    w.what = plan_->program.graph.describe(source);
    if (node.state >= 0) {
      const StateSpec& state = plan_->program.graph.states()[static_cast<std::size_t>(node.state)];
      w.state = fmt::format("{} '{}'", name_of(state.kind), state.name);
      w.puts = node.op->effect == Effect::enqueue;
      w.holds_worker =
          state.kind == StateSpec::Kind::actor && state.actor && !state.actor->options.blocks;
    }
    w.tag = tag_of(iteration);
    w.from = std::move(from);
    return &w;
  };

  const std::unordered_set<const Firing*> spare(spare_.begin(), spare_.end());
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  Lone lone(*this, record);
  for (const auto& firing : firings_) {
    if (spare.contains(firing.get()) || firing->iteration->instance->record != &record) continue;
    const bool is_predicate = !firing->node || firing->node->kind == PlanNode::Kind::switch_;
    const std::int32_t source =
        firing->node ? firing->node->source : predicate_of(*firing->iteration->instance->frame);
    if (source < 0) continue;
    Wait* const w = add_wait(is_predicate ? Wait::Kind::device : Wait::Kind::kernel, source,
                             *firing->iteration, {});
    if (!w || is_predicate) continue;
    // it is not at its queue yet, nor with its actor
    if (firing->waits_for_worker.load(std::memory_order_relaxed)) {
      w->state.clear(), w->holds_worker = false;
      continue;
    }
    if (firing->began.count() > 0)
      w->for_so_long = now - firing->began,
      w->longest =
          std::chrono::nanoseconds(costs_[static_cast<std::size_t>(firing->node->index)].longest);
    w->is_alone = is_at_queue(*w) && lone.is_alone(*firing);
  }

  for (const auto& instance : instances_) {
    if (instance->record != &record) continue;
    if (instance->parent && !instance->frame->function) {
      OpenLoop& loop = part.loops.emplace_back();
      loop.loop = instance->frame->name;
      loop.depth = instance->frame->depth;
      loop.tag = tag_of(*instance->parent);
      loop.execution = instance->execution;
      loop.first = instance->oldest;
      loop.last = instance->opened - 1;
      loop.window = instance->frame->window;
      if (const std::int32_t predicate = predicate_of(*instance->frame); predicate >= 0) {
        loop.predicate = plan_->program.graph.describe(predicate),
        loop.predicate_node = plan_->number_of(predicate);
        if (!deciding_.empty()) tell_decision(*instance, loop);
      }
    }
    for (std::int64_t n = instance->oldest; n < instance->opened; ++n) {
      const Iteration* iteration =
          instance->ring[static_cast<std::size_t>(n) & (instance->ring.size() - 1)];
      if (!iteration) continue;
      for (const PartitionPlan::Receive& receive : mine_.receives)
        if (receive.frame == instance->number && receive.says != PartitionPlan::Says::over &&
            !instance->has_come(n, receive))
          add_wait(Wait::Kind::token, receive.source, *iteration,
                   plan_->partitions[static_cast<std::size_t>(receive.partition)].name);
    }
  }
  const auto add_grant = [&](const Record::Held& held, std::int32_t ahead) {
    const PartitionPlan::Send& send = mine_.sends[static_cast<std::size_t>(held.send)];
    add_wait(Wait::Kind::grant, send.source,
             *held.iteration->instance->at(held.iteration->number + ahead),
             plan_->partitions[static_cast<std::size_t>(send.partition)].name);
  };
  for (const Record::Held& held : record.held) add_grant(held, 0);
  if (record.is_through)
    for (const PartitionPlan::Receive& receive : mine_.receives)
      if (receive.says == PartitionPlan::Says::over &&
          !record.came_over[static_cast<std::size_t>(receive.place)])
        add_wait(Wait::Kind::token, receive.source, record.elsewhere,
                 plan_->partitions[static_cast<std::size_t>(receive.partition)].name);
  // last, so that all edges are named before one takes what there is room for
  for (const Record::Held& held : record.held)
    for (std::int32_t i = 1; i < held.times; ++i) add_grant(held, i);
  std::stable_sort(part.loops.begin(), part.loops.end(),
                   [](const OpenLoop& a, const OpenLoop& b) { return a.depth < b.depth; });
  return part;
}

void Partition::tell_decision(const Instance& instance, OpenLoop& loop) const {
  const Deciding& deciding = deciding_[static_cast<std::size_t>(instance.number)];
  loop.is_endless = deciding.is_endless;
  loop.decision = deciding.followed.decision;
  if (!instance.compared.empty()) loop.decision.comparisons = instance.compared;
  constexpr std::int64_t kFew = 4;  // iterations, in which a round of two is found
  loop.repeats = instance.recurrence.period();
  loop.may_repeat =
      !deciding.variables.empty() && loop.repeats == 0 && instance.recurrence.seen() < kFew;
  for (const Followed::Watch& watch : deciding.followed.watches)
    if (Comparison& c = loop.decision.comparisons[static_cast<std::size_t>(watch.comparison)];
        watch.node < 0 && loop.last > 0)
      // it was true, or the iteration after that would not be open
      c.at = loop.last - 1, c.left = 1;
}

// A server's loop takes from a queue, and ends, as its run does, when that is closed.
bool Partition::ends_with_a_queue(const FramePlan& loop) const {
  const Graph& graph = plan_->program.graph;
  const auto takes = [&](const PlanNode& node) {
    return graph.node(node.source).op->effect == Effect::dequeue;
  };
  for (const PartitionPlan& p : plan_->partitions)
    for (const FramePlan& frame : p.frames) {
      const FramePlan* around = &frame;
      while (around->parent >= 0 && around->name != loop.name)
        around = &p.frames[static_cast<std::size_t>(around->parent)];
      if (around->name == loop.name && std::any_of(frame.nodes.begin(), frame.nodes.end(), takes))
        return true;
    }
  return false;
}

// The program is gone through once, and only where a loop is decided on here.
void Partition::follow_predicates() {
  std::optional<Endless> endless;
  deciding_.resize(mine_.frames.size());
  for (std::size_t f = 0; f < mine_.frames.size(); ++f) {
    const std::int32_t predicate = predicate_of(mine_.frames[f]);
    if (predicate < 0 || ends_with_a_queue(mine_.frames[f])) continue;
    if (!endless) endless.emplace(plan_->program.graph);
    Deciding& deciding = deciding_[f];
    deciding.is_endless = endless->is_endless(predicate);
    deciding.followed = endless->follow(predicate);
    for (const Followed::Watch& watch : deciding.followed.watches)
      for (const PlanNode& node : mine_.frames[f].nodes)
        if (node.source == watch.node && node.kind == PlanNode::Kind::kernel &&
            static_cast<std::size_t>(node.inputs) == watch.left->inputs.size())
          deciding.here.push_back({&node, &watch});
    const auto is_elsewhere = [&](const Followed::Watch& watch) {
      return watch.node >= 0 &&
             std::none_of(deciding.here.begin(), deciding.here.end(),
                          [&](const Deciding::Watch& w) { return w.of == &watch; });
    };
    for (const Followed::Watch& watch : deciding.followed.watches)
      if (is_elsewhere(watch)) deciding.followed.decision.forget(watch.comparison);
    for (const std::int32_t variable : deciding.followed.variables)
      for (std::size_t loop = 0; loop < mine_.loops.size(); ++loop)
        if (mine_.loops[loop].source == variable)
          deciding.variables.push_back(static_cast<std::int32_t>(loop));
    // some are elsewhere
    if (deciding.variables.size() != deciding.followed.variables.size()) deciding.variables.clear();
  }
}

// The node whose value decides whether a loop goes on; -1: it is in another partition.
std::int32_t Partition::predicate_of(const FramePlan& frame) const {
  if (const PlanNode* node = predicate_node(frame)) return node->source;
  const auto decides = [&](const TargetRange& range) {
    return std::any_of(mine_.targets.begin() + range.first, mine_.targets.begin() + range.last,
                       [](const Target& t) { return t.node == Target::kPredicate; });
  };
  // A variable of the loop decides itself: its next value is told as the predicate.
  for (const PartitionPlan::Loop& loop : mine_.loops)
    if (&mine_.frames[static_cast<std::size_t>(loop.frame)] == &frame && decides(loop.targets))
      return plan_->program.graph.node(loop.source).inputs[1].node;
  // Or what leaves a loop within.
  for (const FramePlan& within : mine_.frames) {
    if (within.parent < 0 || &mine_.frames[static_cast<std::size_t>(within.parent)] != &frame)
      continue;
    for (const std::int32_t e : within.exits)
      if (const PartitionPlan::Exit& exit = mine_.exits[static_cast<std::size_t>(e)];
          decides(exit.targets))
        return exit.source;
  }
  return -1;
}

const PlanNode* Partition::predicate_node(const FramePlan& frame) const {
  for (const PlanNode& node : frame.nodes) {
    if (node.has_only) {
      if (node.only.node == Target::kPredicate) return &node;
      continue;
    }
    const std::int32_t* ranges = mine_.output_targets.data() + node.first_output;
    for (std::int32_t o = 0; o < node.outputs; ++o)
      for (std::int32_t t = ranges[2 * o]; t < ranges[2 * o + 1]; ++t)
        if (mine_.targets[static_cast<std::size_t>(t)].node == Target::kPredicate) return &node;
  }
  return nullptr;
}

// A drawn firing begins where the one before it ended: one look at the ticks each. When a turn may
// draw no more, the rest of it fires as if nobody looked: then its long kernels are recorded as
// ever.
void Partition::fire_closely(Iteration& iteration, const PlanNode& node) {
  if (observes_ > 0) observe(iteration, node), --observes_;
  if (!recorder_.traces() || !recorder_.draws()) {
    looks_closer_ = observes_ > 0;
    return fire(iteration, node);
  }
  const std::int64_t number = iteration.number;  // what fires may end its iteration
  const std::uint64_t run = iteration.instance->record->run->number();
  {
    struct Ends {
      bool& is_drawn;
      ~Ends() { is_drawn = false; }  // also where it throws
    };
    is_drawn_ = true;
    const Ends ends{is_drawn_};
    fire(iteration, node);
  }
  const std::uint64_t now = ticks();
  recorder_.add({RecordedEvent::Kind::firing, false, node.source, last_tick_, now - last_tick_, run,
                 number, 0});
  last_tick_ = now;
}

}  // namespace troupe
