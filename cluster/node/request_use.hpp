// The memory that requests of one peer take, compared with the limits that all nodes keep to.
#pragma once

#include <cstddef>
#include <cstdint>

#include <troupe/cluster/runs/early_limits.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {

struct RequestUse {
  std::size_t requests = 0;
  std::uint64_t bytes = 0;

  void add(std::uint64_t more) { ++requests, bytes += more; }
  void remove(std::uint64_t less) { --requests, bytes -= less; }
  /// True if a request of `more` bytes may come to these. A request of any size has room if the
  /// others keep nothing.
  bool has_room(std::uint64_t more, const EarlyLimits& most) const {
    return requests < most.messages &&
           (bytes == 0 || more == 0 || (more <= most.bytes && bytes <= most.bytes - more));
  }
};

}  // namespace troupe
