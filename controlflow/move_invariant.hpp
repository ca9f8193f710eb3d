#pragma once

#include <string>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/program.hpp>

namespace troupe {

/// Moves pure nodes of loops whose operands are the same in every iteration before the loop. Note
/// [Invariant nodes] in NOTES.md lists those worth it. A node that can fail moves only if the loop
/// is known to run, or into a Case on the loop's condition. `told`, if given, gets a line for each
/// loop.
Program move_invariant(Program program, std::vector<std::string>* told = nullptr);

}  // namespace troupe
