// Limits on what the eager scopes of one node may have on another. Both keep to them: the node that
// computes ends the session of one that exceeds them.
#pragma once

#include <cstddef>

namespace troupe {

struct EagerLimits {
  static constexpr std::size_t kValues = 1 << 20;
  static constexpr std::size_t kPrograms = 1 << 16;
  static constexpr std::size_t kStreams = 1 << 12;
};

}  // namespace troupe
