#pragma once

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/program.hpp>

namespace troupe {

/// Puts the nodes of conditionals that have a constant predicate and one branch without effects, as
/// `recompute` makes them, in their place: later passes see one graph. Changes this program and
/// none of its sub-graphs.
Program inline_branches(Program program);

}  // namespace troupe
