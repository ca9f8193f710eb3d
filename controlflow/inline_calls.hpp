#pragma once

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/program.hpp>

namespace troupe {

/// Puts the bodies of functions in the place of calls in loops, where lowering would: a loop
/// without calls may stay whole. A call stays if its function may call itself, draws or has
/// effects, or if the call has a device or control edges. Changes this program, its sub-graphs and
/// the functions that it calls.
Program inline_calls(Program program);

}  // namespace troupe
