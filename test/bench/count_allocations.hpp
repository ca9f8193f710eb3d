// Counts the allocations of all threads, by replacing malloc and the like. Include it in one file
// of a program; libtroupe, libstdc++ (operator new) and every other library come through here.
//
//   const auto before = allocations();
//   step(feeds);
//   allocations() - before;
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace troupe::bench {
inline std::atomic<std::int64_t> allocation_count{0};  // publishes nothing but itself
inline constinit thread_local std::int64_t own_allocation_count = 0;

/// Calls that asked for memory so far. (Freeing costs as well, but never without an allocation.)
inline std::int64_t allocations() { return allocation_count.load(std::memory_order_relaxed); }
/// As `allocations`, of the calling thread alone.
inline std::int64_t own_allocations() { return own_allocation_count; }
inline void count_allocation() {
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  ++own_allocation_count;
}
}  // namespace troupe::bench

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) {
  troupe::bench::count_allocation();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  troupe::bench::count_allocation();
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, std::size_t bytes) {
  troupe::bench::count_allocation();
  return __libc_realloc(old, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  troupe::bench::count_allocation();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  troupe::bench::count_allocation();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  troupe::bench::count_allocation();
  *out = __libc_memalign(alignment, bytes);
  return *out ? 0 : ENOMEM;
}
}
