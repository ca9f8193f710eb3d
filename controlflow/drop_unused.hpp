#pragma once

#include <troupe/ops/graph/program.hpp>

namespace troupe {

/// Removes what was added to functional nodes and nobody uses: what a gradient made a loop or a
/// branch save, where the gradient is not asked for. What the user wrote stays, and so do effects.
Program drop_unused(Program program);

}  // namespace troupe
