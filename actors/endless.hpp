// Loops that can be seen never to end.
#pragma once

#include <cstdint>

#include <troupe/ops/graph.hpp>

namespace troupe {

/// Of a lowered program: does `predicate`, which decides whether a loop goes on, depend on nothing that the loop changes? True once, it is true
/// for ever then. Also false where more than some thousand nodes would have to be looked at, and where states, draws, calls or inner loops have a say.
bool is_same_for_ever(const Graph& program, std::int32_t predicate);

}  // namespace troupe
