// Limits on what the eager scopes of one node may have on another. Both keep to them: the node that
// computes ends the session of one that exceeds them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <troupe/cluster/protocol/messages.hpp>

namespace troupe {

struct EagerLimits {
  static constexpr std::size_t kValues = 1 << 20;
  static constexpr std::size_t kPrograms = 1 << 16;
  static constexpr std::size_t kStreams = 1 << 12;  // open ones
  // memory of a step that waits, and of each value that it names
  static constexpr std::uint64_t kStepBytes = 512, kNameBytes = 24;
};

/// The bytes that steps count beside those of their message, which may be far shorter.
inline std::uint64_t memory_of(std::span<const EagerStep> steps) {
  std::uint64_t bytes = 0;
  for (const EagerStep& s : steps)
    bytes += EagerLimits::kStepBytes + EagerLimits::kNameBytes * (s.in.size() + s.out.size());
  return bytes;
}

}  // namespace troupe
