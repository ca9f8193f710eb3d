#include <troupe/actors/endless.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <troupe/ops/subgraph.hpp>

namespace troupe {

bool is_same_for_ever(const Graph& program, std::int32_t predicate) {
  constexpr std::size_t kMost = 4096;
  std::map<std::int32_t, std::int32_t> closed;  // a loop's Merge: its NextIteration
  for (std::int32_t id = 0; id < program.size(); ++id)
    if (program.node(id).op->name == "NextIteration") closed[program.node(id).inputs[1].node] = id;
  // Is the loop's variable, whose Merge this is, handed on as it came?
  const auto is_handed_on = [&](std::int32_t merge, std::int32_t next) {
    Edge e = program.node(next).inputs[0];
    while (program.node(e.node).op->name == "Identity" || program.node(e.node).op->name == "Switch") e = program.node(e.node).inputs[0];
    return e == Edge{merge, 0};
  };

  std::vector<std::int32_t> cone{predicate};
  const auto add = [&](std::int32_t id) {
    if (std::find(cone.begin(), cone.end(), id) == cone.end()) cone.push_back(id);
  };
  for (std::size_t i = 0; i < cone.size(); ++i) {
    if (cone.size() > kMost) return false;
    const Node& n = program.node(cone[i]);
    const std::string& op = n.op->name;
    if (op == "Enter") {  // in the loop's frame: what leads out of it ends here, and what leads into an inner one comes back by an Exit
      if (!n.attrs.get<bool>("constant")) return false;
      continue;
    }
    if (const auto it = closed.find(cone[i]); it != closed.end()) {
      if (!is_handed_on(cone[i], it->second)) return false;
      continue;
    }
    const bool only_routes = op == "Switch" || op == "Merge" || op == "LoopCond" || op == "Identity" || op == "ControlTrigger";
    if (!only_routes && (!n.op->is_pure() || n.state >= 0 || !subgraphs_of(n).empty())) return false;
    for (const Edge e : n.inputs) {
      if (e.output == 1 && closed.contains(e.node)) return false;  // whether this is the first iteration
      add(e.node);
    }
    for (const std::int32_t c : n.controls) add(c);
  }
  return true;
}

}  // namespace troupe
