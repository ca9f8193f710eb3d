#pragma once

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/program.hpp>

namespace troupe {

/// Puts the nodes of conditionals that have one branch without effects and a constant predicate, as
/// `recompute` makes them, in their place: later passes see one graph. Changes this program, not its
/// sub-graphs.
Program inline_branches(Program program);

}  // namespace troupe
