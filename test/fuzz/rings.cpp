// libFuzzer: words and bytes of shared rings, as written by another process that has mapped the
// memory. Two bytes are a step: an action, and its amount. Instruments:
// cluster/transport/channel/shared_rings.cpp cluster/transport/channel/direct_ring.cpp
// cluster/transport/net/fixed_memory.cpp
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include <troupe/cluster/transport/channel/shared_rings.hpp>
#include <troupe/test/fuzz/input.hpp>

using namespace troupe;
using namespace troupe::test;

namespace {

// behind them rings of direct records: see direct.cpp
constexpr std::size_t kPage = 4096, kRing = kPage + SharedRings::kBytes, kRings = 2 * kRing,
                      kWhole = kRings + 2 * (kPage + direct::kLines * sizeof(direct::Line));
// The words of a direction, each in a line of its own (SharedRings::Direction).
constexpr std::size_t kWritten = 0, kRead = 128, kReaderSleeps = 256, kWriterSleeps = 384;

/// The memory as seen by a process that ignores the protocol.
class Other {
 public:
  explicit Other(int memory)
      : at_(static_cast<std::byte*>(
            mmap(nullptr, kWhole, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0))) {
    demand(at_ != MAP_FAILED);
  }
  ~Other() { munmap(at_, kWhole); }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;
  std::byte* at(std::size_t offset) { return at_ + offset % kRings; }
  std::uint64_t word(std::size_t offset) {
    return *reinterpret_cast<volatile std::uint64_t*>(at(offset));
  }
  void set(std::size_t offset, std::uint64_t value) {
    *reinterpret_cast<volatile std::uint64_t*>(at(offset)) = value;
  }

 private:
  std::byte* at_;
};

/// One end, used as BulkSockets does, with a copy of its own of what each must keep to itself.
class Honest {
 public:
  Honest(SharedRings rings, bool is_first)
      : rings_(std::move(rings)), memory_(rings_.descriptor()), out_(is_first ? 0 : kRing),
        in_(is_first ? kRing : 0) {
    demand(in_bytes_ - out_bytes_ == (is_first ? 1 : -1) * static_cast<std::ptrdiff_t>(kRing));
  }

  /// BulkSockets::flush_ring: so many bytes at most.
  void write(std::size_t most) {
    const std::span<std::byte> space = rings_.space();
    if (rings_.is_broken()) return demand(space.empty());
    demand(space.size() <= SharedRings::kBytes && written_ - last_read_ <= SharedRings::kBytes);
    if (space.empty()) {
      const bool is_full = written_ - memory_.word(out_ + kRead) == SharedRings::kBytes;
      demand(rings_.sleep_until_space() == is_full &&
             (memory_.word(out_ + kWriterSleeps) & 0xffffffff) == is_full);
      return;
    }
    const std::size_t n = std::min(most, space.size());
    demand(is_within(space, out_bytes_, written_));
    std::memset(space.data(), static_cast<int>(written_ % 251), n);
    space.back() = std::byte{1};
    // at the address where the other reads it
    demand(*memory_.at(out_ + kPage + written_ % SharedRings::kBytes + space.size() - 1) ==
           std::byte{1});
    written_ += n;
    rings_.publish(n);
    demand(memory_.word(out_ + kWritten) == written_);
  }
  /// Read positions of the other: one beyond the written bytes, or one that makes the ring
  /// overfull, breaks the rings as soon as it is looked up.
  void look_at_read() {
    const std::uint64_t said = memory_.word(out_ + kRead);
    const bool is_looked_at = written_ - last_read_ > SharedRings::kBytes / 2,
               was_broken = rings_.is_broken();
    const bool is_none = rings_.space().empty();
    if (is_looked_at) last_read_ = said;
    const std::uint64_t used = written_ - last_read_;
    demand(rings_.is_broken() == (was_broken || used > SharedRings::kBytes));
    demand(is_none == (rings_.is_broken() || used == SharedRings::kBytes));
  }
  /// BulkSockets::receive_ring.
  void read(std::size_t most) {
    const bool was_broken = rings_.is_broken();
    const std::uint64_t there = memory_.word(in_ + kWritten) - read_;
    const std::span<const std::byte> from = rings_.bytes();
    demand(rings_.is_broken() == (was_broken || there > SharedRings::kBytes));
    if (rings_.is_broken()) return demand(from.empty());
    const std::size_t at = read_ % SharedRings::kBytes;
    demand(from.size() == std::min<std::uint64_t>(there, SharedRings::kBytes - at));
    if (from.empty()) {
      demand(rings_.sleep_until_bytes());
      return rings_.wake_up();
    }
    const std::size_t n = std::min(most, from.size());
    demand(is_within(from, in_bytes_, read_) &&
           std::memcmp(from.data(), memory_.at(in_ + kPage + at), from.size()) == 0);
    read_ += n;
    const bool was_asleep = (memory_.word(in_ + kWriterSleeps) & 0xffffffff) != 0;
    demand(!rings_.consume(n) || was_asleep);
    demand(memory_.word(in_ + kRead) == read_);
  }
  void sleep() {
    const bool is_empty = memory_.word(in_ + kWritten) == read_;
    demand(rings_.sleep_until_bytes() == is_empty);
    rings_.wake_up();
    demand((memory_.word(in_ + kReaderSleeps) & 0xffffffff) == 0);
  }
  std::uint64_t written() const { return written_; }
  std::uint64_t read() const { return read_; }

 private:
  static bool is_within(std::span<const std::byte> span, const std::byte* ring,
                        std::uint64_t position) {
    const std::size_t at = position % SharedRings::kBytes;
    return span.data() == ring + at && span.size() <= SharedRings::kBytes - at;
  }

  SharedRings rings_;
  Other memory_;
  const std::size_t out_, in_;
  const std::byte *out_bytes_ = rings_.space().data(), *in_bytes_ = rings_.bytes().data();
  std::uint64_t written_ = 0, read_ = 0, last_read_ = 0;
};

void step(Honest& honest, Other& other, bool is_first, unsigned what, unsigned much, Input& in) {
  const std::size_t out = is_first ? 0 : kRing, into = is_first ? kRing : 0;
  const std::size_t bytes = much * much * 17;  // up to a little more than a ring
  switch (what % 9) {
    case 0: honest.look_at_read(), honest.write(bytes); break;
    case 1: honest.read(bytes); break;
    case 2: honest.sleep(); break;
    // Positions of the other: it has read the written bytes, or written more, up to the ring's
    // size, or past it.
    case 3: other.set(out + kRead, honest.written() - bytes); break;
    case 4: other.set(into + kWritten, honest.read() + bytes); break;
    case 5:
      other.set((much % 2 == 0 ? out : into) + (much / 2 % 2 == 0 ? kReaderSleeps : kWriterSleeps),
                in.next());
      break;
    case 6: {  // any word as if it were what stands there
      std::uint64_t value = 0;
      for (int i = 0; i < 8; ++i) value = value << 8 | in.next();
      other.set((much % 2 == 0 ? out : into) + (much / 2 % 4) * 128, value);
      break;
    }
    case 7: *other.at(much * 4099ul * in.next()) = static_cast<std::byte>(in.next()); break;
    default:
      std::memset(other.at(into + kPage + honest.read() % SharedRings::kBytes),
                  static_cast<int>(much), 1);
      break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  using namespace std::string_literals;
  seed("\0\0\xff\0\xff\3\0\0\xff"s);
  seed("\1\4\x10\1\x08\1\xff\2\0\4\xff\1\xff\4\xff\1\xff"s);
  seed("\0\6\1\xff\xff\xff\xff\xff\xff\xff\xff\1\1"s);
  seed("\1\0\xc0\5\2\1\1\4\xff\7\3\2\1\x8\7\1\xff"s);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  Input in(data, size);
  const bool is_first = in.next() % 2 == 0;
  SharedRings made = SharedRings::create();
  Other other(made.descriptor());
  Honest honest(
      is_first ? std::move(made) : SharedRings::open(OwnedDescriptor(dup(made.descriptor()))),
      is_first);
  for (std::size_t left = std::min<std::size_t>(size / 2, 256); left > 0; --left) {
    const unsigned what = in.next(), much = in.next();
    step(honest, other, is_first, what, much, in);
  }
  return 0;
}
