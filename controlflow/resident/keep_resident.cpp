#include <troupe/controlflow/resident/keep_resident.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/controlflow/build.hpp>
#include <troupe/controlflow/check_nan_predicates.hpp>
#include <troupe/controlflow/resident/choose_small.hpp>
#include <troupe/controlflow/resident/early_reads.hpp>
#include <troupe/devices/base/device_name.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/pointwise.hpp>

namespace troupe {

bool is_resident_scalar(const ValueSpec& spec) {
  return !spec.is_list() && spec.dtype != DType::string && spec.shape.is_known() &&
         spec.shape.is_scalar();
}

bool is_resident_loop(const Node& node) { return node.op->name == "ResidentLoop"; }

bool is_scalar_step(const Graph& graph, const Node& node) {
  if (!node.op->pointwise && node.op->name != "Fused") return false;
  if (find_device_kernel(kind_of(kHostDevice), node.op->name)) return false;
  return !node.inputs.empty() &&
         std::all_of(node.outputs.begin(), node.outputs.end(), is_resident_scalar) &&
         std::all_of(node.inputs.begin(), node.inputs.end(),
                     [&](Edge e) { return is_resident_scalar(graph.spec(e)); });
}

bool is_all_scalar(const SubGraph& sub) {
  std::vector<char> is_input(at(sub.graph.size()), 0);
  for (Edge e : sub.inputs) is_input[at(e.node)] = 1;
  for (std::int32_t id = 0; id < sub.graph.size(); ++id) {
    const Node& node = sub.graph.node(id);
    if (is_input[at(id)] || is_scalar_step(sub.graph, node)) continue;
    if (node.op->name != "Constant" && node.op->name != "Identity") return false;
    if (!is_resident_scalar(node.outputs[0])) return false;
  }
  return true;
}

namespace {

// A kernel of more multiplications takes longer than a hand-over to another worker. The lowered
// form runs such kernels, and iterations, side by side.
constexpr double kHeavy = 300'000;

class Reasons {
 public:
  explicit Reasons(const Node& loop) : device_(loop.device) {}

  std::string of(const Node& loop) {
    const WhileView w(loop);
    if (w.variables == 0) return "it has no variables";
    for (const ValueSpec& spec : w.implicit)
      if (!is_resident_scalar(spec) && !spec.is_list())
        return "its gradient adds up a tensor that starts as a scalar zero";
    for (const SubGraph* sub : {&w.condition, &w.body})
      if (std::string why = of(*sub); !why.empty()) return why;
    return {};
  }

 private:
  std::string of(const SubGraph& sub) {
    const Graph& g = sub.graph;
    std::vector<char> is_input(at(g.size()), 0);
    for (Edge e : sub.inputs) is_input[at(e.node)] = 1;
    for (std::int32_t id = 0; id < g.size(); ++id) {
      const Node& node = g.node(id);
      for (const ValueSpec& spec : node.outputs) {
        if (spec.dtype == DType::string) return g.describe(id) + " is of strings";
        if (!spec.is_list() && !spec.shape.is_known())
          return g.describe(id) + " is of no known shape";
      }
      if (is_input[at(id)] || node.op->name == "Constant") continue;
      if (node.op->name == "Case") {
        for (const auto& branch : subgraphs_of(node))
          if (std::string why = of(*branch); !why.empty()) return why;
        if (!is_here(node)) return g.describe(id) + " is on a device of its own";
        continue;
      }
      if (is_resident_loop(node)) {
        if (!is_here(node)) return g.describe(id) + " is on a device of its own";
        continue;
      }
      if (node.op->name == "While") return name_of_loop(node) + " in it is lowered";
      if (node.op->name == "Call") return g.describe(id) + " calls a function";
      if (node.state >= 0) return g.describe(id) + " uses a state";
      if (node.op->effect != Effect::none || node.op->side_effect || !node.op->kernel)
        return g.describe(id) + " has effects";
      if (!is_here(node)) return g.describe(id) + " is on a device of its own";
      if (work_of(g, node) > kHeavy)
        return g.describe(id) + " takes so long that others may run beside it";
    }
    return {};
  }

  bool is_here(const Node& node) const { return node.device == device_; }

  // The root is the number of multiplications of a product of two matrices, and a bound of others.
  static double work_of(const Graph& g, const Node& node) {
    double largest = 0, product = 1;
    const auto see = [&](const ValueSpec& spec) {
      if (spec.is_list() || !spec.shape.is_known()) return;
      const auto n = static_cast<double>(spec.shape.elements());
      largest = std::max(largest, n);
      product *= n;
    };
    for (const ValueSpec& spec : node.outputs) see(spec);
    for (Edge e : node.inputs) see(g.spec(e));
    const bool multiplies = !node.op->pointwise && node.op->name != "Fused" &&
                            node.inputs.size() == 2 && node.outputs.size() == 1;
    return multiplies ? std::max(largest, std::sqrt(product)) : largest;
  }

  const std::string& device_;
};

bool is_here_on_host(const std::string& device, const std::string& here) {
  return device.empty() ||
         ((node_of(device).empty() || node_of(device) == here) && is_on_host(device));
}

std::string other_device_in(const Graph& graph, const std::string& here) {
  for (const Node& node : graph.nodes()) {
    if (!is_here_on_host(node.device, here)) return node.device;
    for (const auto& sub : subgraphs_of(node))
      if (std::string device = other_device_in(sub->graph, here); !device.empty()) return device;
  }
  return {};
}

}  // namespace

std::string other_device(const Graph& graph, const std::string& here) {
  for (const StateSpec& state : graph.states())
    if (!is_here_on_host(state.device, here)) return state.device;
  for (const auto& function : graph.functions())
    if (function->body)
      if (std::string device = other_device_in(function->body->graph, here); !device.empty())
        return device;
  return other_device_in(graph, here);
}

std::string why_lowered(const Graph& graph, std::int32_t loop) {
  return Reasons(graph.node(loop)).of(graph.node(loop));
}

namespace {

// The line of a loop that stays whole ends with the tensors that are registers. The outermost loop
// chooses for those within, whose lines come before.
void tell_small(const Node& loop, std::int64_t most, std::vector<std::string>& told) {
  constexpr std::string_view kBegin = "; tensors of up to ";
  const std::string line = name_of_loop(loop) + ": resident, ";
  for (std::size_t i = told.size(); i-- > 0;) {
    if (told[i].compare(0, line.size(), line) != 0) continue;
    told[i].resize(std::min(told[i].size(), told[i].find(kBegin)));
    if (most > 0) told[i] += fmt::format("{}{} elements are registers", kBegin, most);
    break;
  }
  const std::function<void(const SubGraph&)> within = [&](const SubGraph& sub) {
    for (const Node& node : sub.graph.nodes()) {
      if (is_resident_loop(node)) tell_small(node, most, told);
      else
        for (const auto& inner : subgraphs_of(node)) within(*inner);
    }
  };
  for (const auto& sub : subgraphs_of(loop)) within(*sub);
}

// Puts the reads before the loop. They wait for all that the loop waits for: its input may be an
// element that another run has enqueued after an assignment. `lower` has writes wait for the loop.
Node after_reads(EarlyReads early, Graph& to, std::vector<std::string>* told) {
  Node& loop = early.loop;
  std::vector<std::int32_t> waits = loop.controls;
  for (Edge e : loop.inputs) {
    if (e.node < 0 || to.node(e.node).op->name == "Constant") continue;
    // A call that a node waits for is never replaced by its body.
    if (to.node(e.node).op->name == "Call") {
      Node passes_on;
      passes_on.op = &find_op("Identity");
      passes_on.inputs = {e};
      passes_on.outputs = {to.spec(e)};
      passes_on.scope = loop.scope;
      passes_on.site = loop.site;
      passes_on.origin = loop.origin;
      e = {to.append(std::move(passes_on)), 0};
    }
    waits.push_back(e.node);
  }
  std::sort(waits.begin(), waits.end());
  waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
  std::vector<std::int64_t> states;
  std::vector<std::string> names;
  auto input = loop.inputs.end() - static_cast<std::ptrdiff_t>(early.reads.size());
  for (Node& read : early.reads) {
    read.controls = waits;
    states.push_back(read.state);
    *input = {to.append(std::move(read)), 0};
    names.push_back(to.describe(input++->node));
  }
  if (told)
    told->push_back(
        fmt::format("{}: read once before it: {}", name_of_loop(loop), fmt::join(names, ", ")));
  loop.attrs.set("reads", std::move(states));
  return std::move(loop);
}

}  // namespace

Program keep_resident(Program program, const ResidentOptions& options,
                      std::vector<std::string>* told) {
  const std::string& interpreted = options.interpreted_because;
  const std::string resident =
      interpreted.empty() ? ": resident, compiled" : ": resident, interpreted: " + interpreted;
  return change_loops(std::move(program), [&](const ChangedLoop& loop) {
    Node& node = loop.node;
    std::string why = options.is_on ? Reasons(node).of(node) : options.off_because;
    if (!why.empty() && options.is_on) {
      if (const std::string stay = why_reads_stay(node); !stay.empty()) {
        why = stay;
      } else if (auto early = early_reads(node)) {
        why = Reasons(early->loop).of(early->loop);
        if (why.empty()) node = after_reads(std::move(*early), loop.to.graph(), told);
      }
    }
    if (told) told->push_back(name_of_loop(node) + (why.empty() ? resident : ": lowered: " + why));
    if (!why.empty()) return;
    node.op = &find_op("ResidentLoop");
    node.attrs.set("compiled", interpreted.empty());
    const std::int64_t most = most_small_elements(node, interpreted.empty());
    node.attrs.set("small", most);
    if (told) tell_small(node, most, *told);
    const SubGraph& condition = *subgraphs_of(node)[0];
    for (std::size_t i = 1; i < condition.outputs.size(); ++i)
      node.outputs.push_back(condition.graph.spec(condition.outputs[i]));
  });
}

}  // namespace troupe
