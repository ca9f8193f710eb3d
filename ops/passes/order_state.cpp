#include <troupe/ops/program.hpp>

namespace troupe {

// For each state the accesses since the last that all later ones wait for. A new access waits for
// every earlier one it conflicts with; one that conflicts with all of them replaces them.
Program order_state(const Program& program) {
  Rewriter rewriter(program);
  struct Access {
    std::int32_t node;  // new id
    Effect effect;
  };
  std::vector<std::vector<Access>> open(program.graph.states().size());
  for (std::int32_t id = 0; id < program.graph.size(); ++id) {
    const Node& old = program.graph.node(id);
    if (old.state < 0 || old.op->effect == Effect::none) {
      rewriter.keep(id);
      continue;
    }
    Node node = rewriter.translated(id);
    std::vector<Access>& accesses = open[old.state];
    bool replaces_all = true;
    for (const Access& a : accesses) {
      if (conflicts(a.effect, old.op->effect)) node.controls.push_back(a.node);
      else replaces_all = false;
    }
    std::int32_t now = rewriter.replace(id, std::move(node));
    if (replaces_all) accesses.clear();
    accesses.push_back({now, old.op->effect});
  }
  return rewriter.finish();
}

}  // namespace troupe
