// Memory for tensors: a caching allocator per device, with counters and a settable limit.
//
//   Allocator& heap = host_allocator();
//   void* p = heap.allocate(1 << 20);  heap.deallocate(p, 1 << 20);
//
// A cold page costs 1.2 µs (3 GB/s); a warm one copies at 40 GB/s: freed blocks are kept in size
// classes and handed out again, the large ones 2 MiB-aligned and advised to be huge pages.
// Threads: any. Order: the caller frees a block only after the last queued kernel that touches it;
// on a stream device that is "freed in the stream's order", because reuse is enqueued behind the
// last use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace troupe::detail {

struct AllocatorCounters {
  std::uint64_t in_use = 0;       // bytes handed out now
  std::uint64_t peak = 0;         // the most bytes ever handed out at once
  std::uint64_t cached = 0;       // bytes kept for reuse
  std::uint64_t allocations = 0;  // calls of allocate
  std::uint64_t misses = 0;       // calls that no kept block could serve
  std::uint64_t limit = 0;        // bytes, 0 = none
};

class Allocator {
 public:
  virtual ~Allocator() = default;
  /// At least `bytes` bytes, 64-byte aligned; throws Error(resource_exhausted) naming the size.
  virtual void* allocate(std::size_t bytes) = 0;
  /// `bytes` as given to allocate.
  virtual void deallocate(void* memory, std::size_t bytes) noexcept = 0;
  /// Returns true if an allocation of `bytes` would stay within the limit now.
  virtual bool has_room(std::size_t bytes) const = 0;
  virtual AllocatorCounters counters() const = 0;
  /// Returns the bytes that can still be handed out, as far as is known; 0: it is not. It asks the
  /// source, which takes some microseconds.
  virtual std::uint64_t available() const { return 0; }
  /// Returns blocks to the source that are kept for reuse and were freed `kAges` calls ago. Call it
  /// regularly, say once a second, to get unused memory back.
  virtual void age() {}
  static constexpr std::size_t kAges = 10;
};

/// The source of a caching allocator's blocks (the system, a device, a test).
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Null if there is none left.
  virtual void* get(std::size_t bytes) = 0;
  virtual void put(void* memory, std::size_t bytes) noexcept = 0;
  /// Returns the bytes that `get` can still return; 0: it is not known.
  virtual std::uint64_t available() const { return 0; }
};

/// Keeps freed blocks by size class. With a limit, `in_use` and `cached` together never exceed it:
/// the cached blocks that were freed longest ago are returned first, as many as necessary; then
/// allocate throws.
std::unique_ptr<Allocator> make_caching_allocator(std::unique_ptr<MemorySource> source,
                                                  std::uint64_t limit = 0);
/// Pages of this process's memory; from 1 MiB up 2 MiB-aligned huge ones.
std::unique_ptr<MemorySource> make_host_memory();

/// The process's heap for host tensors, as malloc is for bytes.
Allocator& host_allocator();

}  // namespace troupe::detail
