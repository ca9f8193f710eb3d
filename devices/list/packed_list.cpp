#include <troupe/devices/list/packed_list.hpp>

#include <bit>
#include <cstring>
#include <new>
#include <utility>

namespace troupe::detail {

namespace {

struct SpareChunks {
  static constexpr int kFirst = 12, kLast = 20;  // by the binary logarithm of their bytes
  ~SpareChunks() {
    is_open = false;
    for (void* chunk : chunks) ::operator delete(chunk);
  }
  // Null: chunks of this size are not kept.
  static void** of(std::size_t bytes) {
    const int log = static_cast<int>(std::bit_width(bytes)) - 1;
#if defined(__SANITIZE_ADDRESS__)
    if (log >= 0) return nullptr;  // so that ASan sees stale uses
#endif
    if (!is_open || log < kFirst || log > kLast) return nullptr;
    thread_local SpareChunks mine;
    return &mine.chunks[log - kFirst];
  }
  static inline thread_local bool is_open = true;  // the thread has not ended
  void* chunks[kLast - kFirst + 1] = {};
};

}  // namespace

void* PackedChunks::take(std::size_t bytes) {
  if (void** const spare = SpareChunks::of(bytes); spare && *spare)
    return std::exchange(*spare, nullptr);
  return ::operator new(bytes);
}

void PackedChunks::give(void* chunk, std::size_t bytes) {
  if (void** const spare = SpareChunks::of(bytes); spare && !*spare) *spare = chunk;
  else ::operator delete(chunk);
}

void PackedList::close(ElementCursor& cursor) {
  const std::int64_t n = cursor.first + (cursor.next - cursor.begin) /
                                            static_cast<std::ptrdiff_t>(packed().element_bytes());
  packed().end_at(n);
  std::memcpy(bits_ + 8, &n, sizeof n);
  cursor = {};
}

}  // namespace troupe::detail
