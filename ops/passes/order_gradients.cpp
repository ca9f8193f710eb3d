#include <troupe/ops/graph/program.hpp>

#include <algorithm>
#include <map>
#include <string>

#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/subgraph.hpp>
#include <troupe/ops/passes/update_order.hpp>

// Gradients of large variables that go into their updates and nowhere else are made one after the
// other: the next begins when the update by the last has freed it. Otherwise free workers begin all
// of them, and as many stand in memory at once. The product of errors and the variable's old value
// (dx) waits for the gradient, which is the last to need the activations from which both come:
//
//   dy ─► MatMul (of dw2) ─► UpdateVariable w2 ┄┄► MatMul (of dw1) ─► UpdateVariable w1
//    │      ┆                                       ▲
//    └──► MatMul (of dx) ───────────────────────────┘
//
// A large product takes all workers by itself: a training step of 784-512-512-10 on two workers
// takes as long, and 6.5 MiB instead of 7.7. The pass skips updates that need a later gradient, as
// clipping by the global norm does, and programs with control flow.

namespace troupe::detail {
namespace {

constexpr std::int64_t kLarge = 65'536;  // elements

struct Step {
  std::int32_t gradient, update;
};

using Ids = std::vector<std::int32_t>;

/// True if there is control flow: dead tokens, frames and checks of loops have their own order.
bool has_control_flow(const Graph& g) {
  return std::any_of(g.nodes().begin(), g.nodes().end(),
                     [](const Node& n) { return function_of(n) || !subgraphs_of(n).empty(); });
}

/// Returns the predecessors of each node: its inputs, and earlier nodes with effects on the same
/// state, or on the world.
std::vector<Ids> predecessors(const Graph& g) {
  std::vector<Ids> before(at(g.size()));
  std::vector<Ids> readers(g.states().size());
  Ids writer(g.states().size(), -1);
  std::int32_t acted = -1;
  for (std::int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    Ids& mine = before[at(id)];
    for (Edge e : n.inputs) mine.push_back(e.node);
    mine.insert(mine.end(), n.controls.begin(), n.controls.end());
    if (n.state >= 0 && n.op->effect != Effect::none) {
      if (writer[at(n.state)] >= 0) mine.push_back(writer[at(n.state)]);
      if (n.op->effect == Effect::read) {
        readers[at(n.state)].push_back(id);
      } else {
        mine.insert(mine.end(), readers[at(n.state)].begin(), readers[at(n.state)].end());
        readers[at(n.state)].clear();
        writer[at(n.state)] = id;
      }
    } else if (has_effect(n)) {
      if (acted >= 0) mine.push_back(acted);
      acted = id;
    }
  }
  return before;
}

/// The large gradients that are used for an update alone, as they are made.
std::vector<Step> steps_of(const Program& program) {
  const Graph& g = program.graph;
  std::vector<int> uses(at(g.size()));
  for (Edge e : program.fetches) ++uses[at(e.node)];
  for (std::int32_t id = 0; id < g.size(); ++id)
    for (Edge e : g.node(id).inputs) ++uses[at(e.node)];
  std::vector<Step> steps;
  for (std::int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (!updates_in_place(n) || n.outputs[0].shape.elements() < kLarge) continue;
    for (Edge e : n.inputs) {
      const Node& made = g.node(e.node);
      const bool is_own = made.state < 0 && !made.inputs.empty() && uses[at(e.node)] == 1 &&
                          made.outputs.size() == 1 && made.device == n.device;
      if (!is_own || made.outputs[0].shape.elements() != n.outputs[0].shape.elements()) continue;
      steps.push_back({e.node, id});
      break;
    }
  }
  std::sort(steps.begin(), steps.end(),
            [](const Step& a, const Step& b) { return a.gradient < b.gradient; });
  return steps;
}

/// Returns the update that each node waits for; -1: none. With gradients numbered as they are made,
/// on all devices, and last(u) the highest that update u comes after: a gradient j waits for an
/// update u of its device with last(u) < j. A cycle would lead from u to j, on to an update u' with
/// last(u') >= j, from that to j' > last(u'), and so to ever higher numbers.
Ids waits_of(const Graph& g, const std::vector<Step>& steps, const std::vector<Ids>& before) {
  Ids last(at(g.size()), -1), waits_for(at(g.size()), -1);
  for (std::size_t i = 0; i < steps.size(); ++i)
    last[at(steps[i].gradient)] = static_cast<std::int32_t>(i);
  for (std::int32_t id = 0; id < g.size(); ++id)
    for (const std::int32_t b : before[at(id)]) last[at(id)] = std::max(last[at(id)], last[at(b)]);
  std::map<std::string, std::int32_t> update;  // the one before, of each device
  for (std::size_t j = 0; j < steps.size(); ++j) {
    const auto [found, is_first] =
        update.try_emplace(g.node(steps[j].update).device, steps[j].update);
    if (!is_first && last[at(found->second)] < static_cast<std::int32_t>(j))
      waits_for[at(steps[j].gradient)] = found->second;
    found->second = steps[j].update;
  }
  return waits_for;
}

/// Returns the edge whose memory e is a view of, or e itself.
Edge viewed(const Graph& g, Edge e) {
  while (is_view(g.node(e.node))) e = g.node(e.node).inputs[0];
  return e;
}

bool share_an_input(const Graph& g, const Node& a, const Node& b) {
  return std::any_of(a.inputs.begin(), a.inputs.end(), [&](Edge e) {
    return std::any_of(b.inputs.begin(), b.inputs.end(),
                       [&](Edge other) { return viewed(g, e) == viewed(g, other); });
  });
}

/// Returns for each node the gradients that it has to wait for. A node waits if it takes a
/// variable's old value and an input of the variable's gradient, and if the gradient comes first in
/// the graph's order, as all inputs of a node do. Nodes smaller than the gradient do not wait: the
/// gradient is in memory meanwhile, and the activations, of the node's size, do not outweigh it.
/// Nodes that another device waits for do not wait either: the delay costs more than the memory
/// gains.
std::vector<Ids> gradients_before(const Graph& g, const std::vector<Step>& steps) {
  std::vector<Ids> steps_of_state(g.states().size());  // in the order of their updates
  for (std::size_t i = 0; i < steps.size(); ++i)
    steps_of_state[at(g.node(steps[i].update).state)].push_back(static_cast<std::int32_t>(i));
  for (Ids& of_one : steps_of_state)
    std::sort(of_one.begin(), of_one.end(), [&](std::int32_t a, std::int32_t b) {
      return steps[at(a)].update < steps[at(b)].update;
    });
  std::vector<bool> leaves(at(g.size()));  // for another device
  for (const Node& n : g.nodes())
    for (Edge e : n.inputs)
      if (g.node(e.node).device != n.device) leaves[at(e.node)] = true;
  // A node without outputs counts as empty, and so does one of unknown size.
  const auto size_of = [&](std::int32_t id) {
    return g.node(id).outputs.empty() ? 0 : g.node(id).outputs[0].shape.elements();
  };
  std::vector<Ids> gradients(at(g.size()));
  for (std::int32_t id = 0; id < g.size(); ++id)
    for (Edge e : g.node(id).inputs) {
      const Node& read = g.node(e.node);
      if (read.state < 0 || read.op->effect != Effect::read) continue;
      const Ids& all = steps_of_state[at(read.state)];
      const auto next = std::find_if(all.begin(), all.end(),
                                     [&](std::int32_t i) { return steps[at(i)].update > e.node; });
      if (next == all.end()) continue;
      const std::int32_t gradient = steps[at(*next)].gradient;
      if (gradient < id && g.node(gradient).device == g.node(id).device && !leaves[at(id)] &&
          size_of(id) >= size_of(gradient) && share_an_input(g, g.node(id), g.node(gradient)))
        gradients[at(id)].push_back(gradient);
    }
  return gradients;
}

}  // namespace

Program order_gradients(Program program) {
  const Graph& g = program.graph;
  if (!has_only_variables(g) || has_control_flow(g)) return program;
  const std::vector<Step> steps = steps_of(program);
  if (steps.size() < 2) return program;
  std::vector<Ids> before = predecessors(g), more = gradients_before(g, steps);
  for (std::size_t id = 0; id < more.size(); ++id)
    before[id].insert(before[id].end(), more[id].begin(), more[id].end());
  const Ids waits_for = waits_of(g, steps, before);
  for (std::int32_t id = 0; id < g.size(); ++id)
    if (waits_for[at(id)] >= 0)
      before[at(id)].push_back(waits_for[at(id)]), more[at(id)].push_back(waits_for[at(id)]);

  // Emit the nodes in an order in which each comes after its predecessors.
  Rewriter rewriter(program);
  enum class Visit : std::uint8_t { untouched, open, done };
  std::vector<Visit> state(at(g.size()), Visit::untouched);
  std::vector<std::size_t> looked_at(at(g.size()));  // number of visited predecessors
  Ids open;
  for (std::int32_t root = 0; root < g.size(); ++root) {
    if (state[at(root)] != Visit::untouched) continue;
    open.push_back(root);
    state[at(root)] = Visit::open;
    while (!open.empty()) {
      const std::int32_t id = open.back();
      if (looked_at[at(id)] < before[at(id)].size()) {
        const std::int32_t b = before[at(id)][looked_at[at(id)]++];
        if (state[at(b)] == Visit::open)
          throw Error(Code::internal, "order_gradients made a circle");
        if (state[at(b)] == Visit::untouched) {
          state[at(b)] = Visit::open;
          open.push_back(b);
        }
        continue;
      }
      open.pop_back();
      state[at(id)] = Visit::done;
      Node node = rewriter.translated(id);
      for (const std::int32_t waited : more[at(id)]) {
        const std::int32_t control = rewriter.control_at(waited);
        if (const auto where =
                std::lower_bound(node.controls.begin(), node.controls.end(), control);
            where == node.controls.end() || *where != control)
          node.controls.insert(where, control);
      }
      rewriter.replace(id, std::move(node));
    }
  }
  return rewriter.finish();
}

}  // namespace troupe::detail
