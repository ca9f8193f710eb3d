// Records the initial values of an engine's variables, and makes the warnings about others of the
// same name.
//
//   compiled->warnings = record.add(graph, needed_nodes(graph, feeds, fetches));
//   record.forget("w");  // the engine's user has set it
//
// Graphs of an engine share variables by name, and the first one that uses a variable starts it. A
// second graph with another initial value gets the variable as it is, which is seldom meant. A
// variable that the user has set has no initial value to differ from.
//
// Threads: any. Invariant: a line is reported at most once, and never for a set variable.
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

class InitialRecord {
 public:
  /// Adds the variables that the `needed` nodes of `graph` use. Returns a sentence for each that an
  /// earlier graph started from another value, once for each line that declares it.
  std::vector<std::string> add(const Graph& graph, const std::vector<char>& needed);
  /// Ends the warnings about a variable.
  void forget(const std::string& variable);

 private:
  struct Known {
    std::uint64_t graph = 0;     // the graph that started it
    StateSpec spec;              // as that graph declared it
    bool is_set = false;         // by the user
    std::set<std::string> told;  // lines that were reported
  };
  std::mutex mutex_;                    // guards known_
  std::map<std::string, Known> known_;  // by the variable's name
};

}  // namespace troupe
