#pragma once

#include <string>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/program.hpp>

namespace troupe {

/// Removes unused loop variables, results of branches, results and arguments of calls, and captured
/// values, through all nested sub-graphs and functions at once. Effects stay, those of the
/// outermost graph included: a node waits for the effects that an argument it has lost led to.
/// A variable that only feeds itself is unused. A function gets a version of its own for each set
/// of results that calls use. `told`, if given, gets a line for each node that became smaller.
Program drop_unused_outputs(Program program, std::vector<std::string>* told = nullptr);

}  // namespace troupe
