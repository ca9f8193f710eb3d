#include <troupe/actors/endless.hpp>

#include <string>
#include <unordered_set>
#include <vector>

#include <troupe/ops/subgraph.hpp>

namespace troupe {

Endless::Endless(const Graph& program) : program_(program) {
  for (std::int32_t id = 0; id < program.size(); ++id)
    if (program.node(id).op->name == "NextIteration") closed_[program.node(id).inputs[1].node] = id;
}

// Is the loop's variable, whose Merge this is, the same in the next iteration?
bool Endless::is_handed_on(std::int32_t merge, std::int32_t next) const {
  Edge e = program_.node(next).inputs[0];
  while (program_.node(e.node).op->name == "Identity" || program_.node(e.node).op->name == "Switch") e = program_.node(e.node).inputs[0];
  return e == Edge{merge, 0};
}

bool Endless::is_same_for_ever(std::int32_t predicate) const {
  constexpr std::size_t kMost = 4096;
  std::vector<std::int32_t> cone{predicate};
  std::unordered_set<std::int32_t> seen{predicate};
  const auto add = [&](std::int32_t id) {
    if (seen.insert(id).second) cone.push_back(id);
  };
  for (std::size_t i = 0; i < cone.size(); ++i) {
    if (cone.size() > kMost) return false;
    const Node& n = program_.node(cone[i]);
    const std::string& op = n.op->name;
    if (op == "Enter") {  // what comes from outside: an inner loop's is behind an Exit
      if (!n.attrs.get<bool>("constant")) return false;
      continue;
    }
    if (const auto it = closed_.find(cone[i]); it != closed_.end()) {
      if (!is_handed_on(cone[i], it->second)) return false;
      continue;
    }
    const bool only_routes = op == "Switch" || op == "Merge" || op == "LoopCond" || op == "Identity" || op == "ControlTrigger";
    if (!only_routes && (!n.op->is_pure() || n.state >= 0 || !subgraphs_of(n).empty())) return false;
    for (const Edge e : n.inputs) {
      if (e.output == 1 && closed_.contains(e.node)) return false;  // whether this is the first iteration
      add(e.node);
    }
    for (const std::int32_t c : n.controls) add(c);
  }
  return true;
}

}  // namespace troupe
