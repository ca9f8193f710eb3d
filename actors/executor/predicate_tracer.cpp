#include <troupe/actors/executor/predicate_tracer.hpp>

#include <algorithm>
#include <cmath>
#include <optional>

#include <troupe/devices/scalar/scalar_eval.hpp>

namespace troupe {

void PredicateTracer::start() {
  constexpr int kObserved = 4096;  // firings, and a few iterations of a large loop
  constexpr std::size_t kRead = 4 << 20;
  if (mine_.frames.size() <= 1) return;
  observes_ = kObserved + 8 * mine_.nodes;
  may_read_ = kRead;
  if (deciding_.empty()) follow_predicates();
}

void PredicateTracer::observe(const IterationState& iteration, const PlanNode& node) {
  if (observes_ <= 0) return;
  look(iteration, node);
  --observes_;
}

// Only comparisons on which a predicate depends are kept, and only if their operands are known.
void PredicateTracer::look(const IterationState& iteration, const PlanNode& node) {
  FrameState& instance = *iteration.instance;
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

// Only variables on which the predicate depends are kept.
void PredicateTracer::observe_next(const IterationState& iteration, std::int32_t loop,
                                   const Value& value) {
  FrameState& instance = *iteration.instance;
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

// Returns the input of a node that is about to fire: from a token, or bound.
const Value& PredicateTracer::input_of(const IterationState& iteration, const PlanNode& node,
                                       std::int32_t input) const {
  const Held* held = mine_.held.data() + node.first_held;
  for (const Held* last = held + node.held; held != last; ++held)
    if (held->slot == node.first_input + input)
      return held->constant >= 0
                 ? mine_.constants[static_cast<std::size_t>(held->constant)]
                 : iteration.instance->invariants[static_cast<std::size_t>(held->invariant)];
  return iteration.values[static_cast<std::size_t>(node.first_input + input)];
}

void PredicateTracer::describe(const FrameState& instance, OpenLoop& loop) const {
  if (deciding_.empty()) return;
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
bool PredicateTracer::ends_with_a_queue(const FramePlan& loop) const {
  const Graph& graph = plan_.program.graph;
  const auto takes = [&](const PlanNode& node) {
    return graph.node(node.source).op->effect == Effect::dequeue;
  };
  for (const PartitionPlan& p : plan_.partitions)
    for (const FramePlan& frame : p.frames) {
      const FramePlan* around = &frame;
      while (around->parent >= 0 && around->name != loop.name)
        around = &p.frames[static_cast<std::size_t>(around->parent)];
      if (around->name == loop.name && std::any_of(frame.nodes.begin(), frame.nodes.end(), takes))
        return true;
    }
  return false;
}

// Traces the program once, and only for loops that this partition decides.
void PredicateTracer::follow_predicates() {
  std::optional<LoopConditionAnalysis> endless;
  deciding_.resize(mine_.frames.size());
  for (std::size_t f = 0; f < mine_.frames.size(); ++f) {
    const std::int32_t predicate = predicate_of(mine_.frames[f]);
    if (predicate < 0 || ends_with_a_queue(mine_.frames[f])) continue;
    if (!endless) endless.emplace(plan_.program.graph);
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
std::int32_t PredicateTracer::predicate_of(const FramePlan& frame) const {
  if (const PlanNode* node = predicate_node(frame)) return node->source;
  const auto decides = [&](const TargetRange& range) {
    return std::any_of(mine_.targets.begin() + range.first, mine_.targets.begin() + range.last,
                       [](const Target& t) { return t.is(Destination::predicate); });
  };
  // A loop variable itself is the predicate: its next value goes to the predicate's target.
  for (const PartitionPlan::Loop& loop : mine_.loops)
    if (&mine_.frames[static_cast<std::size_t>(loop.frame)] == &frame && decides(loop.targets))
      return plan_.program.graph.node(loop.source).inputs[1].node;
  // Or the Exit of a loop within is the predicate.
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

const PlanNode* PredicateTracer::predicate_node(const FramePlan& frame) const {
  for (const PlanNode& node : frame.nodes) {
    if (node.has_only) {
      if (node.only.is(Destination::predicate)) return &node;
      continue;
    }
    const std::int32_t* ranges = mine_.output_targets.data() + node.first_output;
    for (std::int32_t o = 0; o < node.outputs; ++o)
      for (std::int32_t t = ranges[2 * o]; t < ranges[2 * o + 1]; ++t)
        if (mine_.targets[static_cast<std::size_t>(t)].is(Destination::predicate)) return &node;
  }
  return nullptr;
}

}  // namespace troupe
