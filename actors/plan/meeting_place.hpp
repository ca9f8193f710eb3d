// MeetingPlace: where devices of a mesh meet in a run, equal on all nodes of the run.
#pragma once

#include <compare>
#include <cstdint>

#include <troupe/devices/base/internal.hpp>

namespace troupe::detail {

struct MeetingPlace {
  std::int64_t key = 0;    // the node's, among those of the program that meet
  std::uint64_t tag = 0;   // the iteration's
  std::int32_t group = 0;  // the first device of the line
  friend auto operator<=>(const MeetingPlace&, const MeetingPlace&) = default;
};

}  // namespace troupe::detail
