// The level of a query: B, the time that a message may be blocked, and M, the time that state
// reaches back. Both are application time.
//
//   strong (B = M = forever)  the output is ordered by sync and never revises history
//   middle (0, forever)       no blocking; retractions in between; equal up to each sync point
//   weak   (0, M)             as middle; messages later than M are clipped; equal at sync points
#pragma once

#include <troupe/actors/events/time.hpp>

namespace troupe::events {

struct Consistency {
  Time blocking = 0;
  Time memory = kForever;

  static constexpr Consistency strong() { return {kForever, kForever}; }
  static constexpr Consistency middle() { return {}; }
  static constexpr Consistency weak(Time memory) { return {0, memory}; }
  constexpr bool is_strong() const { return blocking == kForever; }
  bool operator==(const Consistency&) const = default;
};

/// Throws Error (invalid_argument) unless 0 <= B <= M.
void check_consistency(const Consistency& level);

}  // namespace troupe::events
