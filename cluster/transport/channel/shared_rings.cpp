#include <troupe/cluster/transport/channel/shared_rings.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>

#include <troupe/cluster/transport/net/fixed_memory.hpp>

namespace troupe {

/// Positions count bytes since the beginning. Each lies in a line of its own: one process writes
/// it, the other reads it.
struct SharedRings::Direction {
  alignas(128) std::atomic<std::uint64_t> written;  // publishes the bytes before it
  alignas(128) std::atomic<std::uint64_t> read;     // gives back the bytes before it
  alignas(128) std::atomic<std::uint32_t> reader_sleeps;
  alignas(128) std::atomic<std::uint32_t> writer_sleeps;
};

/// Positions in the memory: the words, and one page behind them the bytes.
struct SharedRings::Parts {
  std::byte *out, *in, *direct_out, *direct_in;
};

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kRing = kPage + SharedRings::kBytes,
                      kDirect = kPage + direct::kLines * sizeof(direct::Line);
constexpr std::size_t kWhole = 2 * (kRing + kDirect);

}  // namespace

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

SharedRings SharedRings::create() { return map(fixed_memory("troupe rings", kWhole), true); }

SharedRings SharedRings::open(OwnedDescriptor memory) {
  if (fixed_memory_bytes(memory) != kWhole)
    throw Error(Code::data_loss, "the shared memory does not have the agreed fixed size");
  return map(std::move(memory), false);
}

void SharedRings::Unmap::operator()(std::byte* base) const { munmap(base, kWhole); }

SharedRings SharedRings::map(OwnedDescriptor memory, bool is_first) {
  void* at =
      mmap(nullptr, kWhole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory.get(), 0);
  if (at == MAP_FAILED)
    throw Error(Code::unavailable,
                fmt::format("shared memory cannot be mapped: {}", std::strerror(errno)));
  auto* const base = static_cast<std::byte*>(at);
  Parts parts{base, base + kRing, base + 2 * kRing, base + 2 * kRing + kDirect};
  if (!is_first) std::swap(parts.out, parts.in), std::swap(parts.direct_out, parts.direct_in);
  return SharedRings(std::move(memory), Mapping(base), parts);
}

// Words of zeros, as the memory is, and of atomics without locks: there is nothing to construct.
SharedRings::SharedRings(OwnedDescriptor memory, Mapping mapping, const Parts& parts)
    : memory_(std::move(memory)), base_(std::move(mapping)),
      out_(std::launder(reinterpret_cast<Direction*>(parts.out))),
      in_(std::launder(reinterpret_cast<Direction*>(parts.in))), out_bytes_(parts.out + kPage),
      in_bytes_(parts.in + kPage),
      direct_out_(*std::launder(reinterpret_cast<DirectWords*>(parts.direct_out)),
                  std::launder(reinterpret_cast<direct::Line*>(parts.direct_out + kPage))),
      direct_in_(*std::launder(reinterpret_cast<DirectWords*>(parts.direct_in)),
                 std::launder(reinterpret_cast<direct::Line*>(parts.direct_in + kPage))) {
  static_assert(sizeof(Direction) <= kPage && sizeof(DirectWords) <= kPage);
}

std::span<std::byte> SharedRings::space() {
  // Bytes that were read at that time stay read: an old word is still a lower bound, and the
  // acquire of its load stays valid.
  if (written_ - read_there_ > kBytes / 2) read_there_ = out_->read.load(std::memory_order_acquire);
  const std::uint64_t used = written_ - read_there_;
  if (used > kBytes) is_broken_ = true;
  if (is_broken_) return {};
  const std::size_t at = written_ % kBytes;
  return {out_bytes_ + at, std::min<std::size_t>(kBytes - used, kBytes - at)};
}

bool SharedRings::publish(std::size_t bytes) {
  written_ += bytes;
  out_->written.store(written_, std::memory_order_seq_cst);
  return wakes_reader();
}

bool SharedRings::wakes_reader() {
  return out_->reader_sleeps.load(std::memory_order_seq_cst) != 0 &&
         out_->reader_sleeps.exchange(0, std::memory_order_seq_cst) != 0;
}

bool SharedRings::sleep_until_space() {
  out_->writer_sleeps.store(1, std::memory_order_seq_cst);
  if (written_ - out_->read.load(std::memory_order_seq_cst) == kBytes) return true;
  out_->writer_sleeps.store(0, std::memory_order_seq_cst);
  return false;
}

std::span<const std::byte> SharedRings::bytes() {
  const std::uint64_t there = in_->written.load(std::memory_order_acquire) - read_;
  if (there > kBytes) is_broken_ = true;
  if (is_broken_) return {};
  const std::size_t at = read_ % kBytes;
  return {in_bytes_ + at, std::min<std::size_t>(there, kBytes - at)};
}

bool SharedRings::consume(std::size_t bytes) {
  read_ += bytes;
  in_->read.store(read_, std::memory_order_seq_cst);
  // Not for a little space: a writer that is woken is to have something to do.
  if (in_->written.load(std::memory_order_relaxed) - read_ > kBytes / 2) return false;
  return in_->writer_sleeps.load(std::memory_order_seq_cst) != 0 &&
         in_->writer_sleeps.exchange(0, std::memory_order_seq_cst) != 0;
}

bool SharedRings::sleep_until_bytes(bool looks_at_bytes) {
  in_->reader_sleeps.store(1, std::memory_order_seq_cst);
  if ((!looks_at_bytes || in_->written.load(std::memory_order_seq_cst) == read_) &&
      !direct_in_.has_news())
    return true;
  wake_up();
  return false;
}

void SharedRings::wake_up() { in_->reader_sleeps.store(0, std::memory_order_seq_cst); }

}  // namespace troupe
