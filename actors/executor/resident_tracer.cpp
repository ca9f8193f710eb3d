#include <troupe/actors/executor/resident_tracer.hpp>

#include <algorithm>
#include <cmath>
#include <optional>

#include <troupe/controlflow/lower.hpp>
#include <troupe/devices/scalar/scalar_eval.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe {

namespace {

// The loop alone, in the lowered form.
Program lowered_alone(const Graph& graph, const Node& loop) {
  Program program{graph.blank(), {}, {}};
  Node alone = loop;
  alone.controls.clear();
  const auto variables = subgraphs_of(loop)[1]->outputs.size();
  alone.outputs.resize(variables);
  for (Edge& e : alone.inputs) {
    const Node& from = graph.node(e.node);
    Node input;
    if (from.op->name == "Constant") {
      input = from;
      input.controls.clear();
    } else {
      input.op = &find_op("Input");
      input.outputs = {graph.spec(e)};
      input.attrs = Attrs{{"dtype", input.outputs[0].dtype}, {"shape", input.outputs[0].shape}};
    }
    e = {program.graph.append(std::move(input)), 0};
  }
  const std::int32_t id = program.graph.append(std::move(alone));
  for (std::size_t k = 0; k < variables; ++k)
    program.fetches.push_back({id, static_cast<std::int32_t>(k)});
  return lower(std::move(program), false);
}

}  // namespace

ResidentTracer::ResidentTracer(const Graph& graph, const Node& loop,
                               const ResidentProgram& program) {
  const Program lowered = lowered_alone(graph, loop);
  const Graph& g = lowered.graph;
  const std::size_t variables = subgraphs_of(loop)[1]->outputs.size();
  std::vector<std::int32_t> next;  // the last ones are the whole loop's
  for (std::int32_t id = 0; id < g.size(); ++id)
    if (g.node(id).op->name == "NextIteration") next.push_back(id);
  next.erase(next.begin(), next.end() - static_cast<std::ptrdiff_t>(variables));
  const std::int32_t merge = g.node(next[0]).inputs[1].node;
  std::int32_t predicate = -1;
  for (std::int32_t id = 0; id < g.size() && predicate < 0; ++id)
    if (g.node(id).op->name == "Switch" && g.node(id).inputs[0].node == merge &&
        g.node(g.node(id).inputs[1].node).op->name == "LoopCond")
      predicate = g.node(id).inputs[1].node;
  if (predicate < 0) return;
  const LoopConditionAnalysis endless(g);
  is_endless_ = endless.is_endless(predicate);
  followed_ = endless.follow(predicate);
  for (const std::int32_t variable : followed_.variables)
    if (const auto it = std::find(next.begin(), next.end(), variable); it != next.end())
      variables_.push_back(static_cast<std::size_t>(it - next.begin()));
  if (variables_.size() != followed_.variables.size()) variables_.clear();
  find_watches(program, g);
}

// A node of the lowered loop is the step that has its origin.
void ResidentTracer::find_watches(const ResidentProgram& program, const Graph& lowered) {
  for (const Followed::Watch& watch : followed_.watches) {
    const auto& steps = program.compared();
    const auto step =
        watch.node < 0 ? steps.end() : std::find_if(steps.begin(), steps.end(), [&](const auto& s) {
          const Node& node = lowered.node(watch.node);
          return s.origin == node.origin && s.op == node.op &&
                 s.operands.size() == watch.left->inputs.size();
        });
    if (step != steps.end())
      watches_.push_back({watch.comparison, watch.left, watch.right, step->operands});
    else if (watch.node >= 0) followed_.decision.forget(watch.comparison);
  }
}

void ResidentTracer::start() {
  constexpr std::size_t kRead = 4 << 20;
  const std::lock_guard lock(mutex_);
  may_read_ = kRead;
}

void ResidentTracer::see(const ResidentRun& execution) {
  const std::lock_guard lock(mutex_);
  if (compared_.empty()) compared_ = followed_.decision.comparisons;
  const std::int64_t now = execution.iterations(), seen = execution.compared_iteration();
  for (const Watch& watch : watches_) {
    std::vector<Value> operands;
    for (const ResidentPlace& place : watch.operands) operands.push_back(execution.value(place));
    const auto number = [&](const ScalarProgram& side) {
      Value out;
      evaluate_scalars(side, operands, out);
      return out.tensor().at(0);
    };
    const double left = number(*watch.left), right = watch.right ? number(*watch.right) : 0.0;
    Comparison& comparison = compared_[at(watch.comparison)];
    constexpr double kWhole = 0x1p53;  // doubles tell integers apart below this only
    if (comparison.whole_below > 0 && (std::abs(left) >= kWhole || std::abs(right) >= kWhole))
      continue;
    comparison.see(seen, left, right);
  }
  if (variables_.empty()) return;
  if (recurrence_.is_new()) recurrence_.begin(variables_.size(), 1);
  for (std::size_t v = 0; v < variables_.size(); ++v)
    recurrence_.see(now, v, execution.variable(variables_[v]), may_read_);
}

void ResidentTracer::describe(OpenLoop& loop) const {
  constexpr std::int64_t kFew = 4;  // iterations, in which a round of two is found
  const std::lock_guard lock(mutex_);
  loop.is_endless = is_endless_;
  loop.decision = followed_.decision;
  if (!compared_.empty()) loop.decision.comparisons = compared_;
  loop.repeats = recurrence_.period();
  loop.may_repeat = !variables_.empty() && loop.repeats == 0 && recurrence_.seen() < kFew;
  for (const Followed::Watch& watch : followed_.watches)
    if (Comparison& c = loop.decision.comparisons[at(watch.comparison)];
        watch.node < 0 && loop.last > 0)
      // it was true, or the iteration after that would not be open
      c.at = loop.last - 1, c.left = 1;
}

}  // namespace troupe
