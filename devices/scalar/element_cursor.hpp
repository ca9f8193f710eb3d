// The place at which scalar code pushes and pops elements, which lie one behind the other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::detail {

/// A place in a chunk of elements. Elements from `begin` to `next` are there; all null: no chunk.
struct ElementCursor {
  std::byte* next = nullptr;
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
  std::int64_t first = 0;  // the number of elements in chunks before
};

}  // namespace troupe::detail
