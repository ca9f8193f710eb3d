#include <troupe/controlflow/resident/choose_small.hpp>

#include <algorithm>
#include <string>

#include <troupe/controlflow/build.hpp>
#include <troupe/controlflow/resident/keep_resident.hpp>
#include <troupe/controlflow/resident/small_steps.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/subgraph.hpp>

namespace troupe {

namespace {

// ns; measured (RESULTS.md, hmc)
constexpr double kCompiled = 0.25, kInterpreted = 2, kKernel = 90, kDirect = 60, kElement = 0.5;
// A kernel's operand or result in registers is a tensor that is allocated, or freed.
constexpr double kCopied = 40;
constexpr double kMostSteps = 6000;  // a step takes some 20 bytes

// Iterations of a loop within, of which nothing is known.
constexpr double kIterations = 10;

struct Estimate {
  double nanoseconds = 0, steps = 0;
  bool has_small = false;
};

class Estimating {
 public:
  Estimating(std::int64_t most, double step) : most_(most), step_(step) {}

  Estimate of(const Node& loop) {
    for (const auto& sub : subgraphs_of(loop)) add(*sub, 1);
    return made_;
  }

 private:
  void add(const SubGraph& sub, double times) {
    for (std::int32_t id = 0; id < sub.graph.size(); ++id) add(sub.graph, id, times);
  }

  void add(const Graph& graph, std::int32_t id, double times) {
    const Node& node = graph.node(id);
    const auto subs = subgraphs_of(node);
    if (!subs.empty()) {
      for (const auto& sub : subs) add(*sub, is_resident_loop(node) ? times * kIterations : times);
      return;
    }
    if (node.inputs.empty() || node.op->name == "Identity" || is_scalar_step(graph, node)) return;
    if (is_small_step(graph, node, most_)) {
      const double steps = SmallSteps::steps_of(graph, node);
      made_.steps += steps;
      made_.nanoseconds += times * steps * step_;
      made_.has_small = true;
      return;
    }
    const std::string& op = node.op->name;
    const bool is_direct =
        node.op->pointwise || op == "Fused" || op == "FusedSlices" || op == "MatMul";
    const bool is_step = is_list_step(graph, node);
    double cost = is_step ? 0 : is_direct ? kDirect : kKernel;
    const auto add_copy = [&](const ValueSpec& spec) {
      if (!is_small(spec, most_)) return;
      cost += kElement * static_cast<double>(spec.shape.elements());
      if (!is_step && !is_direct) cost += kCopied;
    };
    for (Edge e : node.inputs) add_copy(graph.spec(e));
    for (const ValueSpec& spec : node.outputs) add_copy(spec);
    made_.nanoseconds += times * cost;
  }

  // Pushes and pops of elements in registers are steps.
  bool is_list_step(const Graph& graph, const Node& node) const {
    if (node.op->name == "ListPush") return is_small(graph.spec(node.inputs[1]), most_);
    return node.op->name == "ListPop" && is_small(node.outputs[1], most_);
  }

  const std::int64_t most_;
  const double step_;  // ns
  Estimate made_;
};

}  // namespace

bool is_small(const ValueSpec& spec, std::int64_t most) {
  if (most == 0 || spec.is_list() || spec.dtype == DType::string || !spec.shape.is_known() ||
      spec.shape.is_scalar())
    return false;
  const std::int64_t elements = spec.shape.elements();
  return elements > 0 && elements <= most;
}

bool is_small_step(const Graph& graph, const Node& node, std::int64_t most) {
  const auto fits = [&](const ValueSpec& spec) {
    return is_small(spec, most) || is_resident_scalar(spec);
  };
  if (most == 0 || !std::all_of(node.outputs.begin(), node.outputs.end(), fits)) return false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    if (!node.op->takes_only_shape(i) && !fits(graph.spec(node.inputs[i]))) return false;
  return SmallSteps::takes(graph, node);
}

std::int64_t most_small_elements(const Node& loop, bool is_compiled) {
  const double step = is_compiled ? kCompiled : kInterpreted;
  std::int64_t best = 0;
  double least = Estimating(0, step).of(loop).nanoseconds;
  for (std::int64_t most = 4; most <= SmallSteps::kMostElements; most *= 2) {
    const Estimate estimate = Estimating(most, step).of(loop);
    if (!estimate.has_small || estimate.steps > kMostSteps || estimate.nanoseconds >= least)
      continue;
    best = most;
    least = estimate.nanoseconds;
  }
  return best;
}

}  // namespace troupe
