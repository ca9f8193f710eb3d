// Counts the allocations of all threads, by replacing malloc and the like (replaced_malloc.hpp).
// Include it in one file of a program.
//
//   const auto before = allocations();
//   step(feeds);
//   allocations() - before;
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace troupe::bench {
inline std::atomic<std::int64_t> allocation_count{0};  // publishes nothing but itself
inline constinit thread_local std::int64_t own_allocation_count = 0;

/// Calls that asked for memory so far. (Freeing costs as well, but never without an allocation.)
inline std::int64_t allocations() { return allocation_count.load(std::memory_order_relaxed); }
/// As `allocations`, of the calling thread alone.
inline std::int64_t own_allocations() { return own_allocation_count; }
}  // namespace troupe::bench

namespace troupe::test {
inline void note_made(const void*) {
  bench::allocation_count.fetch_add(1, std::memory_order_relaxed);
  ++bench::own_allocation_count;
}
inline void note_remade(const void*, const void* block, std::size_t) { note_made(block); }
}  // namespace troupe::test

#include <troupe/test/support/replaced_malloc.hpp>
