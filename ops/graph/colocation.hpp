// Finds the parts of a node's constraint (actors/placement/constraint.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <troupe/devices/base/device_name.hpp>

namespace troupe {

/// Returns the position of the part `with:`, which names in the constraint may contain too; npos if
/// there is none.
inline std::size_t find_colocation(std::string_view constraint) {
  if (constraint.starts_with("with:")) return 0;
  const std::size_t space = constraint.find(" with:");
  return space == std::string_view::npos ? space : space + 1;
}

/// Returns the parts in front of the device, `/node:NAME` and `/label:KEY=VALUE`.
inline std::string_view find_places(std::string_view constraint) {
  constexpr std::string_view kLabelPrefix = "/label:";
  std::size_t end = 0;
  for (std::string_view rest = constraint;
       rest.starts_with(kNodePrefix) || rest.starts_with(kLabelPrefix);
       rest = constraint.substr(end))
    end = std::min(constraint.find('/', end + 1), constraint.size());
  return constraint.substr(0, end);
}

}  // namespace troupe
