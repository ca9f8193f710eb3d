#include <troupe/cluster/membership/round_trip_check.hpp>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <troupe/cluster/membership/membership.hpp>

namespace troupe {

namespace {

double in_seconds(std::chrono::nanoseconds t) { return std::chrono::duration<double>(t).count(); }

}  // namespace

std::string RoundTripCheck::note(const std::string& node, std::chrono::nanoseconds took) {
  Seen& seen = seen_.try_emplace(node, Seen{took}).first->second;
  if (seen.pings == kPings) return {};
  seen.least = std::min(seen.least, took);
  if (++seen.pings < kPings || seen.least <= period_) return {};
  // A fifth more than a round trip needs, in tenths of a second.
  const double enough = std::ceil(in_seconds(seen.least) * kPeriodsOfSuspicion * 12) / 10;
  return fmt::format(
      "a ping to node '{}' takes {:.3f} s, and is awaited for {:.3f} s: the node will be suspected "
      "although it is healthy; give --suspect-after {:.1f} at least",
      node, in_seconds(seen.least), in_seconds(period_), enough);
}

}  // namespace troupe
