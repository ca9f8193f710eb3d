#include <troupe/ops/program.hpp>

#include <algorithm>
#include <map>
#include <string>

#include <troupe/ops/node_index.hpp>
#include <troupe/ops/subgraph.hpp>

// Gradients of large variables that go into their updates and nowhere else are made one after the other: the next begins when the update by the
// last has freed it. Else workers that are free begin all of them, and as many stand in memory at once:
//
//   dy ─► MatMul (of dw2) ─► UpdateVariable w2 ┄┄► MatMul (of dw1) ─► UpdateVariable w1
//    └──► MatMul (of dx) ...                        ▲ dx
//
// What errors go through (dx) waits for no update, and a large product takes all workers by itself: a training step of 784-512-512-10 on two workers
// takes as long and 6.4 MiB, where it took 7.7. Not where an update needs a later gradient, as clipping by the global norm does.

namespace troupe {
namespace {

constexpr std::int64_t kLarge = 65'536;  // elements

struct Step {
  std::int32_t gradient, update;
};

using Ids = std::vector<std::int32_t>;

bool takes_gradient(const Node& n) { return n.op->name == "UpdateVariable" || n.op->name == "AssignAdd" || n.op->name == "AssignSub"; }

/// What each node comes after: what it takes, and what has effects on the same state, or on the world, before it.
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
    for (const auto& [state, effect] : effects_of(n)) {
      if (writer[at(state)] >= 0) mine.push_back(writer[at(state)]);
      if (effect == Effect::read) {
        readers[at(state)].push_back(id);
        continue;
      }
      mine.insert(mine.end(), readers[at(state)].begin(), readers[at(state)].end());
      readers[at(state)].clear();
      writer[at(state)] = id;
    }
    if (!has_effect(n)) continue;
    if (n.state < 0) {
      if (acted >= 0) mine.push_back(acted);
      acted = id;
    }
  }
  return before;
}

/// Of each device the large gradients that are used for an update alone, as they are made.
std::map<std::string, std::vector<Step>> steps_of(const Program& program) {
  const Graph& g = program.graph;
  std::vector<int> uses(at(g.size()));
  for (Edge e : program.fetches) ++uses[at(e.node)];
  for (std::int32_t id = 0; id < g.size(); ++id)
    for (Edge e : g.node(id).inputs) ++uses[at(e.node)];
  std::map<std::string, std::vector<Step>> steps;
  for (std::int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (!takes_gradient(n) || n.outputs[0].shape.elements() < kLarge) continue;
    for (Edge e : n.inputs) {
      const Node& made = g.node(e.node);
      const bool is_own = made.state < 0 && !made.inputs.empty() && uses[at(e.node)] == 1 && made.outputs.size() == 1 && made.device == n.device;
      if (!is_own || made.outputs[0].shape.elements() != n.outputs[0].shape.elements()) continue;
      steps[n.device].push_back({e.node, id});
      break;
    }
  }
  for (auto& [device, all] : steps) std::sort(all.begin(), all.end(), [](const Step& a, const Step& b) { return a.gradient < b.gradient; });
  return steps;
}

}  // namespace

Program order_gradients(Program program) {
  const Graph& g = program.graph;
  if (std::any_of(g.states().begin(), g.states().end(), [](const StateSpec& s) { return s.kind != StateSpec::Kind::variable; })) return program;
  const auto steps = steps_of(program);
  if (std::none_of(steps.begin(), steps.end(), [](const auto& s) { return s.second.size() > 1; })) return program;
  std::vector<Ids> before = predecessors(g);
  Ids waits_for(at(g.size()), -1);
  for (const auto& [device, all] : steps) {
    // The last of these gradients, by its place among them, that each node comes after; an update that comes after a later one than its own, or an update
    // before it does, must not be waited for.
    Ids place(at(g.size()), -1), last(at(g.size()), -1);
    for (std::size_t i = 0; i < all.size(); ++i) place[at(all[i].gradient)] = static_cast<std::int32_t>(i);
    for (std::int32_t id = 0; id < g.size(); ++id) {
      last[at(id)] = place[at(id)];
      for (const std::int32_t b : before[at(id)]) last[at(id)] = std::max(last[at(id)], last[at(b)]);
    }
    std::int32_t needed = -1;
    for (std::size_t i = 0; i + 1 < all.size(); ++i) {
      needed = std::max(needed, last[at(all[i].update)]);
      if (needed <= static_cast<std::int32_t>(i)) waits_for[at(all[i + 1].gradient)] = all[i].update;
    }
  }
  for (std::int32_t id = 0; id < g.size(); ++id)
    if (waits_for[at(id)] >= 0) before[at(id)].push_back(waits_for[at(id)]);

  // In an order in which everything precedes who waits for it.
  Rewriter rewriter(program);
  std::vector<bool> is_done(at(g.size()));
  Ids open;
  for (std::int32_t root = 0; root < g.size(); ++root) {
    open.push_back(root);
    while (!open.empty()) {
      const std::int32_t id = open.back();
      const auto missing = std::find_if(before[at(id)].begin(), before[at(id)].end(), [&](std::int32_t b) { return !is_done[at(b)]; });
      if (missing != before[at(id)].end() && !is_done[at(id)]) {
        open.push_back(*missing);
        continue;
      }
      open.pop_back();
      if (is_done[at(id)]) continue;
      is_done[at(id)] = true;
      Node node = rewriter.translated(id);
      if (waits_for[at(id)] >= 0) {
        const std::int32_t update = rewriter.control_at(waits_for[at(id)]);
        if (const auto where = std::lower_bound(node.controls.begin(), node.controls.end(), update); where == node.controls.end() || *where != update) node.controls.insert(where, update);
      }
      rewriter.replace(id, std::move(node));
    }
  }
  return rewriter.finish();
}

}  // namespace troupe
