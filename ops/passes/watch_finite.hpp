// The passes behind `CompileOptions::check_finite`.
#pragma once

#include <troupe/ops/graph/program.hpp>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

/// Before fusion: stores the names that errors use in nodes that may be fused.
Program name_parts(Program program);
/// After all other passes: marks the nodes whose results are checked, and those whose operands may
/// contain values that are not finite by the user's intention.
Program watch_finite(Program program);

}  // namespace troupe
