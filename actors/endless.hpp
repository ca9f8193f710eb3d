// Loops that can be seen never to end.
#pragma once

#include <cstdint>
#include <unordered_map>

#include <troupe/ops/graph.hpp>

namespace troupe {

/// A lowered program that is asked about its loops.
class Endless {
 public:
  /// It is referred to.
  explicit Endless(const Graph& program);
  /// Does `predicate`, which decides whether a loop goes on, depend on nothing that the loop changes? True once, it is true for ever then. Also
  /// false where more than some thousand nodes would have to be looked at, and where states, draws, calls or inner loops have a say.
  bool is_same_for_ever(std::int32_t predicate) const;

 private:
  bool is_handed_on(std::int32_t merge, std::int32_t next) const;

  const Graph& program_;
  std::unordered_map<std::int32_t, std::int32_t> closed_;  // a loop's Merge: its NextIteration
};

}  // namespace troupe
