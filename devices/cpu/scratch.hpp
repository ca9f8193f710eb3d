// Memory of a kernel while it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace troupe::cpu {

/// The calling thread's scratch memory, for tiles: grows to the largest request and is kept.
/// 64-byte aligned; valid until the thread's next call.
std::byte* thread_scratch(std::size_t bytes);

/// Memory that `room` gave.
template <class T>
struct RoomDeleter {
  void operator()(T* p) const { ::operator delete (p, std::align_val_t{64}); }
};
template <class T>
using Room = std::unique_ptr<T[], RoomDeleter<T>>;

/// n elements (numbers or bool) that hold nothing yet, 64-byte aligned: where a small product of
/// Eigen begins in a cache line decides which of its elements are made by fused multiply-adds, and
/// malloc's blocks begin elsewhere on other threads.
template <class T>
Room<T> room(std::int64_t n) {
  return Room<T>(static_cast<T*>(
      ::operator new (static_cast<std::size_t>(n) * sizeof(T), std::align_val_t{64})));
}

}  // namespace troupe::cpu
