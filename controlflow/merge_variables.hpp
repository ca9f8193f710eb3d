// merge_variables: a pass that makes one of loop variables that are equal in every iteration.
#pragma once

#include <string>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/program.hpp>

namespace troupe {

/// Merges variables of a loop that start equal, and whose next values are equal if they are: the
/// condition, the body and the users of the results read the first one of them, and the others only
/// feed themselves, so `drop_unused_outputs` removes them. Changes the loops of this program, not
/// of its sub-graphs. `told`: gets a line for each changed loop, if it is not null.
Program merge_variables(Program program, std::vector<std::string>* told = nullptr);

}  // namespace troupe
