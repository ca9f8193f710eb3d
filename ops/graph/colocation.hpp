// Finds the colocation part of a node's constraint (actors/placement/constraint.hpp).
#pragma once

#include <cstddef>
#include <string_view>

namespace troupe {

/// Returns the position of the part `with:`, which names in the constraint may contain too; npos if
/// there is none.
inline std::size_t find_colocation(std::string_view constraint) {
  if (constraint.starts_with("with:")) return 0;
  const std::size_t space = constraint.find(" with:");
  return space == std::string_view::npos ? space : space + 1;
}

}  // namespace troupe
