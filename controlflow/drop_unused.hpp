#pragma once

#include <troupe/ops/program.hpp>

namespace troupe {

/// Removes results of functional nodes that nobody uses, and the loop variables that only serve them:
/// what a gradient made a loop save, where the gradient is not asked for. Effects stay.
Program drop_unused(const Program& program);

}  // namespace troupe
