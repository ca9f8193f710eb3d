// Loops that can be seen never to end.
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

/// What decides whether a loop goes on, and where its numbers are to be seen.
struct Followed {
  /// A comparison's sides are what these make of a node's inputs, when it fires.
  struct Watch {
    std::int32_t node = -1;  // of the program; -1: the predicate is the truth itself
    std::int32_t comparison = 0;
    std::shared_ptr<const ScalarProgram> left, right;  // right: null where it is a truth
  };
  Decision decision;
  std::vector<Watch> watches;  // one a comparison
  // The NextIterations of the variables that an iteration begins with and the predicate depends on,
  // if on nothing but these and what is always computed the same of them
  // (actors/observe/recurrence.hpp). Empty: on more than those, or on more variables than some
  // dozen.
  std::vector<std::int32_t> variables;
};

/// A lowered program that is asked about its loops. Of those in programs where somebody has wired
/// control flow by hand it says nothing: there a value may be dead, which ends a loop, where its
/// graph does not show it.
class Endless {
 public:
  /// It is referred to.
  explicit Endless(const Graph& program);
  /// Does `predicate`, which decides whether a loop goes on, depend on nothing that the loop
  /// changes? True once, it is true for ever then. Also false where more than some thousand nodes
  /// would have to be looked at, and where states, draws, calls or inner loops have a say.
  bool is_endless(std::int32_t predicate) const {
    return decides(predicate) && is_same_for_ever(predicate);
  }
  /// The comparisons behind the output of `predicate` that decides, through logic, fused programs
  /// and truths that the loop carries along; not followed where they are more than some dozen.
  Followed follow(std::int32_t predicate) const;

 private:
  friend class Following;
  bool is_same_for_ever(std::int32_t node) const;
  std::vector<std::int32_t> made_of(std::int32_t node) const;
  bool is_handed_on(std::int32_t merge, std::int32_t next) const;
  Edge source_of(Edge e) const;
  std::optional<Edge> decides(std::int32_t predicate) const;

  const Graph& program_;
  std::unordered_map<std::int32_t, std::int32_t> closed_;  // a loop's Merge: its NextIteration
  std::vector<Edge> deciding_;                             // what structured loops go by
};

}  // namespace troupe
