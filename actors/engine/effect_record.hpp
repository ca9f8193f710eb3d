// Records which effects the functions of an engine run, and makes the warnings about the rest.
//
//   compiled->warnings = record.add(graph, feeds, needed_nodes(graph, feeds, fetches));
//
// A graph that holds a training step and a validation needs two functions, and the second one
// leaves out the step on purpose. So an effect counts as left out only if no function that was
// compiled up to now runs it.
//
// Threads: any. Invariant: an `EffectRecord` holds the newest graphs, at most kGraphs.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe {

class EffectRecord {
 public:
  static constexpr std::size_t kGraphs = 1024;

  /// Adds a function that runs the `needed` nodes of `graph`. Returns its warnings: at most one
  /// about reads that follow effects which are left out, and one for each line with an optimizer's
  /// step that is left out and was not reported before.
  std::vector<std::string> add(const Graph& graph, const std::vector<Edge>& feeds,
                               std::vector<char> needed);

 private:
  struct Known {
    std::set<std::uint64_t> run;   // origins of nodes with effects, and of steps, that were run
    std::set<std::uint64_t> told;  // origins of steps that were reported
  };
  std::mutex mutex_;                       // guards graphs_
  std::map<std::uint64_t, Known> graphs_;  // by the graph's id, which goes up
};

}  // namespace troupe
