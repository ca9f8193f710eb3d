// The counters of a partition, as a snapshot reports them: actors, edges and loops.
#include <troupe/actors/executor/partition_counters.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include <troupe/actors/executor/kernel_runner.hpp>
#include <troupe/actors/executor/partition_observer.hpp>

namespace troupe {

// The nodes that are ready, or have begun, and have not ended.
class PartitionObserver::UnderWay {
 public:
  UnderWay(const Graph& graph, const std::unordered_map<std::int32_t, const PlanNode*>& nodes)
      : graph_(graph), nodes_(nodes) {}
  void add(const IterationState& iteration, const PlanNode& node) {
    firings_.emplace(&iteration, &node);
  }
  /// True if the node of the program has not ended in that iteration. False if it is in another
  /// frame or partition.
  bool awaits(const IterationState& iteration, std::int32_t source) const {
    auto found = nodes_.find(source);
    // which only repeats
    while (found == nodes_.end() && graph_.node(source).op->name == "Identity") {
      source = graph_.node(source).inputs[0].node;
      found = nodes_.find(source);
    }
    const PlanNode* node = found == nodes_.end() ? nullptr : found->second;
    if (!node || static_cast<std::size_t>(node->place) >= iteration.awaited.size() ||
        &iteration.instance->frame->nodes[static_cast<std::size_t>(node->place)] != node)
      return false;
    return (iteration.awaited[static_cast<std::size_t>(node->place)] & IterationState::kCount) !=
               0 ||
           firings_.contains({&iteration, node});
  }

 private:
  const Graph& graph_;
  const std::unordered_map<std::int32_t, const PlanNode*>& nodes_;
  std::set<std::pair<const IterationState*, const PlanNode*>> firings_;
};

void PartitionObserver::find_sources() {
  if (!by_source_.empty()) return;
  for (const FramePlan& frame : mine_.frames)
    for (const PlanNode& node : frame.nodes) by_source_.emplace(node.source, &node);
}

PartitionObserver::ResidentIterations PartitionObserver::resident_iterations() const {
  ResidentIterations all;
  for (const FramePlan& frame : mine_.frames)
    for (const PlanNode& node : frame.nodes)
      if (node.resident) all.emplace(node.index, node.resident->iterations());
  return all;
}

// A node fires once an iteration. So its firings are the iterations that were opened, without the
// open ones in which it has not fired, and without the firings of abandoned runs. A resident loop
// fires once an iteration of its own, too.
std::vector<ActorCounters> PartitionObserver::actor_counters(const PartitionView& view,
                                                             const ResidentIterations& iterations) {
  struct Here {
    // outside: begun, and waiting for an event outside of the run
    std::uint64_t awaiting = 0, ready = 0, running = 0, outside = 0;
    Missing missing;
    const IterationState* iteration = nullptr;  // the iteration that lacks the token
  };
  std::vector<Here> here(static_cast<std::size_t>(mine_.nodes));
  const auto at = [](std::int32_t i) { return static_cast<std::size_t>(i); };
  find_sources();
  UnderWay under_way(plan_.program.graph, by_source_);
  for (const RunState* r : view.runs.active())
    r->ready.each([&](const ReadyNode& one) {
      ++here[at(one.node->index)].ready, under_way.add(*one.iteration, *one.node);
    });
  for (const PendingKernel* kernel : view.kernels.under_way())
    if (kernel->node) {
      Here& h = here[at(kernel->node->index)];
      ++(waits_outside(*kernel) ? h.outside : h.running);
      under_way.add(*kernel->iteration, *kernel->node);
    }
  for (const auto& instance : view.frames.instances()) {
    if (!instance->run_state) continue;
    for (std::int64_t n = instance->oldest; n < instance->opened; ++n) {
      const IterationState* iteration = instance->at(n);
      if (!iteration) continue;
      for (std::size_t i = 0; i < instance->frame->nodes.size(); ++i) {
        if ((iteration->awaited[i] & IterationState::kCount) == 0) continue;
        const PlanNode& node = instance->frame->nodes[i];
        Here& h = here[at(node.index)];
        ++h.awaiting;
        if (h.missing.source >= 0) continue;
        h.missing = missing_input(*iteration, node, under_way);
        if (!h.iteration || h.missing.source >= 0) h.iteration = iteration;
      }
    }
  }

  std::vector<std::uint64_t> fires(here.size());  // by the partition's numbers, as `work_` has them
  std::vector<ActorCounters> all;
  all.reserve(here.size());
  std::unordered_map<const IterationState*, std::string> tags;
  const std::int32_t failed = failed_.load(std::memory_order_relaxed);
  for (std::size_t f = 0; f < mine_.frames.size(); ++f) {
    const LoopCounters& counters = loop_counters_[f];
    const std::uint64_t opened = counters.instances.load(std::memory_order_relaxed) +
                                 counters.iterations.load(std::memory_order_relaxed);
    for (const PlanNode& node : mine_.frames[f].nodes) {
      const Here& h = here[at(node.index)];
      ActorCounters& c = all.emplace_back();
      c.node = plan_.number_of(node.source);
      c.dead = dead_[at(node.index)];
      const std::uint64_t not_fired =
          h.awaiting + h.ready + h.running + h.outside + skipped_[at(node.index)] + c.dead;
      c.fires = opened > not_fired ? opened - not_fired : 0;
      fires[at(node.index)] = c.fires;
      c.state = failed == node.source        ? ActorStatus::failed
                : h.running > 0              ? ActorStatus::running
                : h.ready > 0                ? ActorStatus::ready
                : h.awaiting + h.outside > 0 ? ActorStatus::waiting
                : c.dead > 0 && c.fires == 0 ? ActorStatus::dead
                                             : ActorStatus::idle;
      if (c.state != ActorStatus::waiting || h.outside > 0) continue;
      c.waiting_for = plan_.number_of(h.missing.source), c.waiting_input = h.missing.input;
      const auto [tag, is_new] = tags.try_emplace(h.iteration);
      if (is_new) tag->second = tag_of(*h.iteration);
      c.waiting_tag = tag->second;
    }
  }
  const std::int64_t now = steady_ns();
  work_.settle(fires, std::min(TickClock::now().nanoseconds(turn_ticks_), now - settled_ns_));
  turn_ticks_ = 0;
  settled_ns_ = now;
  std::map<std::int32_t, std::uint64_t> open_ns;  // executions of resident loops under way
  for (const PendingKernel* kernel : view.kernels.under_way())
    if (kernel->execution)
      open_ns[kernel->node->index] +=
          static_cast<std::uint64_t>(std::max<std::int64_t>(0, now - kernel->ran));
  auto counters = all.begin();
  for (const FramePlan& frame : mine_.frames)
    for (const PlanNode& node : frame.nodes) {
      counters->busy_ns = work_.busy_ns(at(node.index));
      counters->bytes_out = work_.bytes_out(at(node.index));
      if (node.resident) {
        counters->busy_ns += open_ns[node.index];
        counters->fires += iterations.at(node.index);
      }
      ++counters;
    }
  return all;
}

// A kernel under way waits if a Completion will end it, unless a user's actor computes for it. A
// kernel that was handed over computes, except at a queue.
bool PartitionObserver::waits_outside(const PendingKernel& kernel) const {
  // its predicate is on its way from a device
  if (kernel.node->kind == PlanNode::Kind::switch_) return true;
  const std::int32_t state = plan_.program.graph.node(kernel.node->source).state;
  if (state < 0) return !kernel.run;
  const StateSpec::Kind kind = plan_.program.graph.states()[static_cast<std::size_t>(state)].kind;
  return kind == StateSpec::Kind::fifo_queue || kind == StateSpec::Kind::shuffling_queue ||
         (!kernel.run && kind != StateSpec::Kind::actor);
}

// Returns a token that the node still awaits. A dead token leaves no value, that of a control edge
// has none, and a Merge has no slot for it. So of the candidates the first counts whose own node
// has not ended here; without one, a candidate counts if it is the only one or all are awaited.
PartitionObserver::Missing PartitionObserver::missing_input(const IterationState& iteration,
                                                            const PlanNode& node,
                                                            const UnderWay& under_way) const {
  const troupe::detail::Node& of_program = plan_.program.graph.node(node.source);
  const std::int32_t awaited = iteration.awaited[static_cast<std::size_t>(node.place)];
  const bool is_merge = node.kind == PlanNode::Kind::merge;
  if (is_merge && (awaited & IterationState::kMerged)) return {};  // only dead tokens are to come
  std::vector<Missing> left;
  for (std::int32_t i = 0;
       i < node.inputs && i < static_cast<std::int32_t>(of_program.inputs.size()); ++i) {
    if (!is_merge && iteration.values[static_cast<std::size_t>(node.first_input + i)].has_value())
      continue;
    const Held* held = mine_.held.data() + node.first_held;
    const auto is_there = [&](const Held& h) {
      return h.slot == node.first_input + i &&
             (h.invariant < 0 ||
              iteration.instance->invariant_came[static_cast<std::size_t>(h.invariant)]);
    };
    if (std::any_of(held, held + node.held, is_there)) continue;
    left.push_back({of_program.inputs[static_cast<std::size_t>(i)].node, i});
    if (!is_merge && !(awaited & IterationState::kDead)) return left[0];
  }
  for (const std::int32_t control : of_program.controls) left.push_back({control, -1});
  const auto one = std::find_if(left.begin(), left.end(), [&](const Missing& m) {
    return under_way.awaits(iteration, m.source);
  });
  if (one != left.end()) return *one;
  return !left.empty() && (left.size() == 1 || static_cast<std::int32_t>(left.size()) ==
                                                   (awaited & IterationState::kCount))
             ? left[0]
             : Missing{};
}

std::vector<EdgeCounters> PartitionObserver::edge_counters() const {
  std::vector<EdgeCounters> all;
  for (std::size_t s = 0; s < sent_.size(); ++s) {
    const PartitionPlan::Send& send = mine_.sends[s];
    all.push_back({plan_.partitions[static_cast<std::size_t>(send.partition)].number, send.receive,
                   sent_[s].tokens.load(std::memory_order_relaxed),
                   sent_[s].bytes.load(std::memory_order_relaxed), 0, 0});
  }
  for (std::size_t r = 0; r < received_.size(); ++r) {
    const FramePlan& frame = mine_.frames[static_cast<std::size_t>(mine_.receives[r].frame)];
    const bool needs_grants = frame.depth > 0 && !frame.function;
    all.push_back({mine_.number, static_cast<std::int32_t>(r), 0, 0,
                   received_[r].tokens.load(std::memory_order_relaxed),
                   needs_grants ? mine_.receives[r].window : -1});
  }
  return all;
}

double achieved_parallelism(const LoopCounters& c) {
  const auto time = static_cast<double>(c.time.load(std::memory_order_relaxed));
  return time > 0 ? static_cast<double>(c.iterations_time.load(std::memory_order_relaxed)) / time
                  : 0.0;
}

LoopSnapshot PartitionObserver::resident_snapshot(const PlanNode& node, std::uint64_t iterations,
                                                  const PartitionView& view,
                                                  const TickClock& clock) const {
  LoopSnapshot l;
  l.loop = node.resident->name();
  l.executions = node.resident->executions();
  l.iterations = iterations;
  l.most_parallel = l.executions > 0;
  const auto ended = resident_time_.find(node.index);
  std::uint64_t time = ended == resident_time_.end() ? 0 : ended->second;
  const std::uint64_t now = driver_.clock().at(ticks());
  for (const PendingKernel* kernel : view.kernels.under_way())
    if (kernel->execution && kernel->node == &node) time += now - kernel->opened;
  l.open_ns = driver_.clock().nanoseconds(time, clock);
  l.achieved_parallelism = time > 0 ? 1 : 0;
  return l;
}

std::vector<LoopSnapshot> PartitionObserver::loop_snapshots(const PartitionView& view,
                                                            const TickClock& clock,
                                                            const ResidentIterations& iterations) {
  for (const auto& instance : view.frames.instances())
    if (instance->run_state && instance->parent) count_time(*instance);
  std::vector<LoopSnapshot> all;
  for (const FramePlan& frame : mine_.frames)
    for (const PlanNode& node : frame.nodes)
      if (node.resident)
        all.push_back(resident_snapshot(node, iterations.at(node.index), view, clock));
  for (std::size_t f = 1; f < mine_.frames.size(); ++f) {
    const FramePlan& frame = mine_.frames[f];
    if (frame.function) continue;
    const LoopCounters& c = loop_counters_[f];
    LoopSnapshot& l = all.emplace_back();
    l.loop = frame.name;
    l.executions = c.instances.load(std::memory_order_relaxed);
    l.iterations = c.iterations.load(std::memory_order_relaxed);
    l.window = frame.window;
    l.most_parallel = c.most_open.load(std::memory_order_relaxed);
    l.open_ns = driver_.clock().nanoseconds(c.time.load(std::memory_order_relaxed), clock);
    l.achieved_parallelism = achieved_parallelism(c);
    l.limited_by_window = static_cast<double>(c.window_waits.load(std::memory_order_relaxed)) /
                          static_cast<double>(std::max<std::uint64_t>(1, l.iterations));
  }
  return all;
}

}  // namespace troupe
