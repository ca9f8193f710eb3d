// What the actors of a partition have done, what predicates compare, and what the flight recorder
// keeps.
#include <troupe/actors/executor/partition.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <troupe/devices/scalar/scalar_eval.hpp>

namespace troupe {

// What has become ready, or has begun, and has not ended.
class Partition::UnderWay {
 public:
  UnderWay(const Graph& graph, const std::unordered_map<std::int32_t, const PlanNode*>& nodes)
      : graph_(graph), nodes_(nodes) {}
  void add(const Iteration& iteration, const PlanNode& node) {
    firings_.emplace(&iteration, &node);
  }
  /// Has this node of the program not ended in that iteration? It is in its frame, or not in this
  /// partition.
  bool awaits(const Iteration& iteration, std::int32_t source) const {
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
    return (iteration.awaited[static_cast<std::size_t>(node->place)] & Iteration::kCount) != 0 ||
           firings_.contains({&iteration, node});
  }

 private:
  const Graph& graph_;
  const std::unordered_map<std::int32_t, const PlanNode*>& nodes_;
  std::set<std::pair<const Iteration*, const PlanNode*>> firings_;
};

void Partition::find_sources() {
  if (!by_source_.empty()) return;
  for (const FramePlan& frame : mine_.frames)
    for (const PlanNode& node : frame.nodes) by_source_.emplace(node.source, &node);
}

// A node fires once an iteration: what has fired are all iterations that were opened, but for what
// has not fired in those that are open, and what was given up.
std::vector<ActorCounters> Partition::actor_counters() {
  struct Here {
    // outside: begun, and waiting for something that is not of the run
    std::uint64_t awaiting = 0, ready = 0, running = 0, outside = 0;
    Missing missing;
    const Iteration* iteration = nullptr;  // in which
  };
  std::vector<Here> here(static_cast<std::size_t>(mine_.nodes));
  const auto at = [](std::int32_t i) { return static_cast<std::size_t>(i); };
  find_sources();
  UnderWay under_way(plan_->program.graph, by_source_);
  for (const Record* r : active_)
    for (const auto* ready : {&r->ready, &r->heavy, &r->first, &r->last})
      for (const Record::Ready& one : *ready)
        ++here[at(one.node->index)].ready, under_way.add(*one.iteration, *one.node);
  const std::unordered_set<const Firing*> spare(spare_.begin(), spare_.end());
  for (const auto& firing : firings_)
    if (firing->node && !spare.contains(firing.get())) {
      Here& h = here[at(firing->node->index)];
      ++(waits_outside(*firing) ? h.outside : h.running);
      under_way.add(*firing->iteration, *firing->node);
    }
  for (const auto& instance : instances_) {
    if (!instance->record) continue;
    for (std::int64_t n = instance->oldest; n < instance->opened; ++n) {
      const Iteration* iteration =
          instance->ring[static_cast<std::size_t>(n) & (instance->ring.size() - 1)];
      if (!iteration) continue;
      for (std::size_t i = 0; i < instance->frame->nodes.size(); ++i) {
        if ((iteration->awaited[i] & Iteration::kCount) == 0) continue;
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
  std::unordered_map<const Iteration*, std::string> tags;
  const std::int32_t failed = failed_.load(std::memory_order_relaxed);
  for (std::size_t f = 0; f < mine_.frames.size(); ++f) {
    const LoopCounters& counters = loop_counters_[f];
    const std::uint64_t opened = counters.instances.load(std::memory_order_relaxed) +
                                 counters.iterations.load(std::memory_order_relaxed);
    for (const PlanNode& node : mine_.frames[f].nodes) {
      const Here& h = here[at(node.index)];
      ActorCounters& c = all.emplace_back();
      c.node = plan_->number_of(node.source);
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
      c.waiting_for = plan_->number_of(h.missing.source), c.waiting_input = h.missing.input;
      const auto [tag, is_new] = tags.try_emplace(h.iteration);
      if (is_new) tag->second = tag_of(*h.iteration);
      c.waiting_tag = tag->second;
    }
  }
  const std::int64_t now = steady_ns();
  work_.settle(fires, std::min(TickClock::now().nanoseconds(turn_ticks_), now - settled_ns_));
  turn_ticks_ = 0;
  settled_ns_ = now;
  auto counters = all.begin();
  for (const FramePlan& frame : mine_.frames)
    for (const PlanNode& node : frame.nodes) {
      counters->busy_ns = work_.busy_ns(at(node.index));
      counters->bytes_out = work_.bytes_out(at(node.index));
      ++counters;
    }
  return all;
}

// A list that comes out is mostly the one that came in: what a firing has put out of it is what it
// may have put into it. Before its kernel, which moves its inputs, on any thread.
std::uint64_t Partition::put_into_lists(const Iteration& iteration, const PlanNode& node) {
  std::uint64_t bytes = 0;
  for (std::int32_t i = 0; i < node.inputs; ++i)
    if (const Value& v = iteration.values[static_cast<std::size_t>(node.first_input + i)];
        i > 0 || !v.is_list())
      bytes += bytes_of(v);
  return bytes;
}

void Partition::measure(const PlanNode& node, std::int64_t nanoseconds,
                        std::span<const Value> outputs, std::uint64_t put, bool in_turn) {
  Cost& cost = costs_[static_cast<std::size_t>(node.index)];
  std::uint64_t bytes = 0, lists = 0;
  for (const Value& v : outputs) (v.is_list() ? lists : bytes) += bytes_of(v);
  bytes += std::min(lists, put);
  work_.timed(static_cast<std::size_t>(node.index), nanoseconds, bytes, in_turn);
  // The first firings warm caches up: their least counts; later samples move the estimate slowly.
  const std::int64_t known = cost.nanoseconds.load(std::memory_order_relaxed);
  const std::int64_t now = cost.samples == 0  ? nanoseconds
                           : cost.samples < 3 ? std::min(known, nanoseconds)
                                              : known + (nanoseconds - known) / 4;
  cost.nanoseconds.store(now, std::memory_order_relaxed);
  if (cost.samples < 3) ++cost.samples;
  if (hands_over_ && cost.samples >= 2 && now >= kHeavy) has_heavy_ = true;
}

// A firing under way waits if its kernel has left it to a Completion; but a user's actor, for which
// it stands, may compute. One that was handed over may still be in its kernel, which a queue's
// leaves at once.
bool Partition::waits_outside(const Firing& firing) const {
  // its predicate is on its way from a device
  if (firing.node->kind == PlanNode::Kind::switch_) return true;
  const std::int32_t state = plan_->program.graph.node(firing.node->source).state;
  if (state < 0) return !firing.run;
  const StateSpec::Kind kind = plan_->program.graph.states()[static_cast<std::size_t>(state)].kind;
  return kind == StateSpec::Kind::fifo_queue || kind == StateSpec::Kind::shuffling_queue ||
         (!firing.run && kind != StateSpec::Kind::actor);
}

// Whose token a node still awaits. A dead one leaves no value, a control edge's none anywhere, and
// a Merge has no place for it: of those that may have come it is the one whose own node has not
// ended here, or all of them have not, or nobody knows.
Partition::Missing Partition::missing_input(const Iteration& iteration, const PlanNode& node,
                                            const UnderWay& under_way) const {
  const troupe::Node& of_program = plan_->program.graph.node(node.source);
  const std::int32_t awaited = iteration.awaited[static_cast<std::size_t>(node.place)];
  const bool is_merge = node.kind == PlanNode::Kind::merge;
  if (is_merge && (awaited & Iteration::kMerged)) return {};  // what is still to come is dead
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
    if (!is_merge && !(awaited & Iteration::kDead)) return left[0];
  }
  for (const std::int32_t control : of_program.controls) left.push_back({control, -1});
  const auto one = std::find_if(left.begin(), left.end(), [&](const Missing& m) {
    return under_way.awaits(iteration, m.source);
  });
  if (one != left.end()) return *one;
  return !left.empty() && (left.size() == 1 ||
                           static_cast<std::int32_t>(left.size()) == (awaited & Iteration::kCount))
             ? left[0]
             : Missing{};
}

std::vector<EdgeCounters> Partition::edge_counters() const {
  std::vector<EdgeCounters> all;
  for (std::size_t s = 0; s < sent_.size(); ++s) {
    const PartitionPlan::Send& send = mine_.sends[s];
    all.push_back({plan_->partitions[static_cast<std::size_t>(send.partition)].number, send.receive,
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

std::vector<LoopSnapshot> Partition::loop_snapshots(const TickClock& clock) {
  for (const auto& instance : instances_)
    if (instance->record && instance->parent) count_time(*instance);
  std::vector<LoopSnapshot> all;
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
    l.open_ns = driver_.nanoseconds(c.time.load(std::memory_order_relaxed), clock);
    l.achieved_parallelism = achieved_parallelism(c);
    l.limited_by_window = static_cast<double>(c.window_waits.load(std::memory_order_relaxed)) /
                          static_cast<double>(std::max<std::uint64_t>(1, l.iterations));
  }
  return all;
}

// What those compare of which it is decided whether a loop goes on, if this node is one of them and
// its inputs are single elements on the host. Its kernel makes the same of them, to the bit.
void Partition::observe(const Iteration& iteration, const PlanNode& node) {
  Instance& instance = *iteration.instance;
  if (deciding_.empty()) return;
  const Deciding& deciding = deciding_[static_cast<std::size_t>(instance.number)];
  std::vector<Value> inputs;
  for (const Deciding::Watch& watch : deciding.here) {
    if (watch.node != &node) continue;
    for (std::int32_t i = static_cast<std::int32_t>(inputs.size()); i < node.inputs; ++i) {
      const Value& v = input_of(iteration, node, i);
      if (!v.has_value() || v.is_list()) return;
      inputs.push_back(v);
    }
    const auto number = [&](const ScalarProgram& side) -> std::optional<double> {
      Value out;
      if (std::all_of(inputs.begin(), inputs.end(), [](const Value& v) { return v.is_inline(); }))
        evaluate_scalars(side, inputs, out);
      else if (std::vector<Value> copies = inputs; !evaluate_elements(side, copies, out))
        return std::nullopt;
      return out.tensor().at(0);
    };
    const std::optional<double> left = number(*watch.of->left),
                                right = watch.of->right ? number(*watch.of->right) : 0.0;
    if (!left || !right) return;
    if (instance.compared.empty()) instance.compared = deciding.followed.decision.comparisons;
    Comparison& seen = instance.compared[static_cast<std::size_t>(watch.of->comparison)];
    constexpr double kWhole = 0x1p53;  // doubles tell integers apart below this only
    if (seen.whole_below > 0 && (std::abs(*left) >= kWhole || std::abs(*right) >= kWhole)) continue;
    seen.see(iteration.number, *left, *right);
  }
}

// What an iteration begins with.
void Partition::observe_next(const Iteration& iteration, std::int32_t loop, const Value& value) {
  Instance& instance = *iteration.instance;
  if (observes_ <= 0 || deciding_.empty()) return;
  const std::vector<std::int32_t>& variables =
      deciding_[static_cast<std::size_t>(instance.number)].variables;
  const auto it = std::find(variables.begin(), variables.end(), loop);
  if (it == variables.end()) return;
  if (instance.recurrence.is_new())
    instance.recurrence.begin(variables.size(), instance.ring.size());
  instance.recurrence.see(iteration.number, static_cast<std::size_t>(it - variables.begin()), value,
                          may_read_);
}

// Of a node that is about to fire: what it awaited, or holds.
const Value& Partition::input_of(const Iteration& iteration, const PlanNode& node,
                                 std::int32_t input) const {
  const Held* held = mine_.held.data() + node.first_held;
  for (const Held* last = held + node.held; held != last; ++held)
    if (held->slot == node.first_input + input)
      return held->constant >= 0
                 ? mine_.constants[static_cast<std::size_t>(held->constant)]
                 : iteration.instance->invariants[static_cast<std::size_t>(held->invariant)];
  return iteration.values[static_cast<std::size_t>(node.first_input + input)];
}

// ---- the flight recorder

void Partition::record_kernel(const Iteration& iteration, const PlanNode& node, std::int64_t start,
                              std::int64_t took) {
  recorder_.add({RecordedEvent::Kind::kernel, true, node.source, static_cast<std::uint64_t>(start),
                 static_cast<std::uint64_t>(took), iteration.instance->record->run->number(),
                 iteration.number, 0});
}

// A firing whose end came from elsewhere: it has waited, or a user's actor has worked for it.
void Partition::record_ended(const Firing& firing) {
  constexpr std::int64_t kShortest = 1'000;  // ns that are worth an event
  const PlanNode& node = *firing.node;
  const std::int64_t took = steady_ns() - firing.began.count();
  std::int64_t& longest = costs_[static_cast<std::size_t>(node.index)].longest;
  if (firing.status.ok()) longest = std::max(longest, took);
  if (took < kShortest) return;
  recorder_.add({waits_outside(firing) ? RecordedEvent::Kind::wait : RecordedEvent::Kind::kernel,
                 true, node.source, static_cast<std::uint64_t>(firing.began.count()),
                 static_cast<std::uint64_t>(took),
                 firing.iteration->instance->record->run->number(), firing.iteration->number, 0});
}

namespace {

// A call has one; what stands first in a path within it is its number.
template <class End>  // of an edge: PartitionPlan::Send or PartitionPlan::Receive
std::int64_t iteration_in(const Path& path, const End& edge) {
  return path.depth > (edge.function < 0 ? 0 : 1) ? path.number[path.depth - 1] : 0;
}

}  // namespace

// The partition has had nothing to do until this token came.
void Partition::record_wait(const Token& token) {
  const PartitionPlan::Receive& edge = mine_.receives[static_cast<std::size_t>(token.receive)];
  recorder_.add({RecordedEvent::Kind::wait, false, edge.source, parked_, heard_ - parked_,
                 token.run->number(), iteration_in(token.path, edge), 0});
  parked_ = 0;
}

// To a device or from it, as long as giving it to the stream took.
void Partition::record_copy(const Run& run, std::int32_t source, std::uint64_t began) {
  recorder_.add(
      {RecordedEvent::Kind::copy, false, source, began, ticks() - began, run.number(), 0, 0});
  looked_ = 0;
}

// What made a run fail, but not what its end has cancelled.
void Partition::record_failure(const Run& run, std::int32_t source) {
  if (!run.is_poisoned())
    recorder_.add({RecordedEvent::Kind::failure, false, source, ticks(), 0, run.number(), 0, 0});
}

// Of several that are one: these.
void Partition::record_sent(const Token& token, const PartitionPlan::Send& to, std::int32_t first,
                            std::int32_t count) {
  if (looked_ == 0 || recorder_.traces()) looked_ = ticks();
  for (std::int32_t i = first; i < first + count; ++i) {
    const std::uint64_t flow = flow_of(token, to.partition, to.receive, i);
    recorder_.add({RecordedEvent::Kind::send, false, to.source, looked_, 0, token.run->number(),
                   iteration_in(token.path, to) + i, flow});
  }
}

// Of several that are one the first stands for all, unless it traces; so at the other end, if that
// sends them as they are posted.
void Partition::record_received(const Token& token) {
  const PartitionPlan::Receive& edge = mine_.receives[static_cast<std::size_t>(token.receive)];
  const std::int32_t recorded = recorder_.traces() ? token.times : 1;
  for (std::int32_t i = 0; i < recorded; ++i) {
    const std::uint64_t flow = flow_of(token, index_, token.receive, i);
    recorder_.add({RecordedEvent::Kind::receive, false, edge.source, heard_, 0, token.run->number(),
                   iteration_in(token.path, edge) + i, flow});
  }
}

// The same number at both ends, made of what both know.
std::uint64_t Partition::flow_of(const Token& token, std::int32_t partition, std::int32_t receive,
                                 std::int32_t ahead) const {
  const Run& run = *token.run;
  std::uint64_t flow =
      run.key.owner ^ (run.key.number ? run.key.number : run.info().id) * 0x9e3779b97f4a7c15u;
  const auto mix = [&](std::uint64_t n) { flow = (flow ^ n) * 0x100000001b3u, flow ^= flow >> 29; };
  mix(static_cast<std::uint64_t>(plan_->partitions[static_cast<std::size_t>(partition)].number)
          << 32 |
      static_cast<std::uint32_t>(receive));
  for (std::int32_t d = 0; d < token.path.depth; ++d)
    mix(static_cast<std::uint64_t>(token.path.number[d] + (d == token.path.depth - 1 ? ahead : 0)));
  return flow | 1;
}

}  // namespace troupe
