// LoopConditionAnalysis: finds loops that provably never end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include <troupe/actors/observe/decision.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/scalar/scalar_program.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe {

/// The formula that decides whether a loop goes on, and the nodes where its numbers are observed.
struct Followed {
  /// `left` and `right` compute a comparison's sides from the inputs of `node` when it fires.
  struct Watch {
    std::int32_t node = -1;  // node of the program; -1: the predicate is the boolean itself
    std::int32_t comparison = 0;
    std::shared_ptr<const ScalarProgram> left, right;  // right: null for a boolean
  };
  Decision decision;
  std::vector<Watch> watches;  // one a comparison
  // NextIterations of the loop variables that the predicate depends on, if it depends on these
  // alone and deterministically (actors/observe/recurrence.hpp). Empty: it depends on more, or on
  // more than some dozen variables.
  std::vector<std::int32_t> variables;
};

/// Answers questions about the loops of a lowered program. It proves nothing about programs whose
/// control flow a user has wired by hand: there a dead value may end a loop, and the graph does not
/// show it.
class LoopConditionAnalysis {
 public:
  /// Keeps a reference to the program.
  explicit LoopConditionAnalysis(const Graph& program);
  /// True if `predicate`, which decides whether a loop goes on, depends on nothing that the loop
  /// changes. If it is true once, it then stays true. Returns false if more than some thousand
  /// nodes would have to be visited, or if it depends on states, draws, calls or inner loops.
  bool is_endless(std::int32_t predicate) const {
    return decides(predicate) && is_same_for_ever(predicate);
  }
  /// Returns the comparisons behind the deciding output of `predicate`, through logic, fused
  /// programs and booleans that the loop carries. More than some dozen are not traced.
  Followed follow(std::int32_t predicate) const;

 private:
  friend class ConditionTracer;
  bool is_same_for_ever(std::int32_t node) const;
  std::vector<std::int32_t> made_of(std::int32_t node) const;
  bool is_handed_on(std::int32_t merge, std::int32_t next) const;
  Edge source_of(Edge e) const;
  std::optional<Edge> decides(std::int32_t predicate) const;

  const Graph& program_;
  std::unordered_map<std::int32_t, std::int32_t> closed_;  // a loop's Merge: its NextIteration
  std::vector<Edge> deciding_;                             // predicates of structured loops
};

}  // namespace troupe
