// RoundTripCheck: decides whether pings to other nodes can be answered in time.
//
//   RoundTripCheck check(options.period);
//   const std::string warning = check.note("b", round_trip);
//
// The least of several round trips to a node is judged, so that one delayed answer proves nothing.
// A delayed process may still raise a false warning, so a warning ends no node.
// Threads: one at a time.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

class RoundTripCheck {
 public:
  /// `period`: the time within which a ping is to be answered (MembershipOptions).
  explicit RoundTripCheck(std::chrono::nanoseconds period) : period_(period) {}
  /// Notes an answered ping. Returns a sentence if the least of the first `kPings` round trips to
  /// this node is longer than the period, once a node; else an empty text.
  std::string note(const std::string& node, std::chrono::nanoseconds took);

  static constexpr int kPings = 5;

 private:
  struct Seen {
    std::chrono::nanoseconds least;
    int pings = 0;
  };
  const std::chrono::nanoseconds period_;
  std::map<std::string, Seen> seen_;
};

}  // namespace troupe
