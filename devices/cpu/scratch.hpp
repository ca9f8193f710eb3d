// Scratch memory of the calling thread: grows to what was ever asked for and is kept.
#pragma once

#include <cstddef>

namespace troupe::cpu {

/// 64-byte aligned; valid until the thread's next call. For tiles.
std::byte* thread_scratch(std::size_t bytes);

}  // namespace troupe::cpu
