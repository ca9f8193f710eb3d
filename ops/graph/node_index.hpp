// Ids of nodes and numbers of frames are 32 bits and signed, since some stand for none; vectors
// count in std::size_t.
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe {

/// `i`, which is not negative, as an index.
constexpr std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

}  // namespace troupe
