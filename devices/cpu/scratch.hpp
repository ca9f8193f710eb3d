// Memory of a kernel while it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace troupe::cpu {

/// Of the calling thread: grows to what was ever asked for and is kept. 64-byte aligned; valid until the thread's next call. For tiles.
std::byte* thread_scratch(std::size_t bytes);

/// n elements that hold nothing yet.
template <class T>
std::unique_ptr<T[]> room(std::int64_t n) {
  return std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(n));
}

}  // namespace troupe::cpu
