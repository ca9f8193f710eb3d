// The passes behind `CompileOptions::check_finite`.
#pragma once

#include <troupe/ops/graph/program.hpp>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

/// Before fusion: nodes that may be fused say what errors are to call them.
Program name_parts(Program program);
/// After all other passes: marks the nodes whose results are looked at, and says of which the
/// operands may hold values that are not finite by the user's wish.
Program watch_finite(Program program);

}  // namespace troupe
