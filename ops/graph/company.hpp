// Where a constraint of a node says with whom it is colocated (actors/placement/constraint.hpp).
#pragma once

#include <cstddef>
#include <string_view>

namespace troupe {

/// Where `with:` begins in a constraint, in whose names it may stand too; npos: nowhere.
inline std::size_t company_at(std::string_view constraint) {
  if (constraint.starts_with("with:")) return 0;
  const std::size_t space = constraint.find(" with:");
  return space == std::string_view::npos ? space : space + 1;
}

}  // namespace troupe
