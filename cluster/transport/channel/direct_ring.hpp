// A ring of small direct records in memory that two processes of one host share, for one direction.
// A direct record goes without a wire frame, an acknowledgement or a kept copy
// (`Transport::send_direct`).
//
// A direct record takes whole lines of a cache. The front of its first line shows that the direct
// record is there: it holds the line's number, counted over all lines since the beginning. So a
// waiting reader polls the line in which the direct record arrives, and a direct record of kFirst
// bytes moves one line between cores. A separate position word would move a second line (a round
// trip of such direct records takes 130 to 440 ns instead of 240 to 660, as the two cores lie). The
// first 8 bytes of every line hold fronts alone, no payload. So what a line keeps from an earlier
// round is zero or a front with a lower number, and is not mistaken for a new one.
//
// Nothing is lost in memory, so nothing is repeated; but a reader may close a ring, with its
// connection, while its writer still writes. Publishing is therefore one step: the writer puts its
// front in place of an earlier one by compare-and-swap. To close the ring the reader puts kClosed,
// by that step, at the next direct record's begin, and then reads the direct records before it. So
// each published direct record is read. A direct record that was not published fails at its writer,
// which sends it as a message. A full ring has no free line to mark. Its writer finds no room, and
// keeps finding none, because a closed reader returns no line.
//
// Each direct record carries the number of messages that precede it. A direct record whose messages
// have not arrived stays in place, with all behind it. The other process is not trusted, as in
// shared_rings.hpp: a direct record is copied out before more than its size is read.
//
// Threads: one on either side.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <troupe/cluster/transport/frame_link.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {

namespace direct {

inline constexpr std::uint64_t kLines = 1024;  // lines of a ring
// bytes of a direct record in its first line, and in each behind it
inline constexpr std::size_t kFirst = 48, kOther = 56;
inline constexpr std::size_t kMost = 4 << 10;  // bytes of a direct record

/// Lines of a direct record of so many bytes.
inline constexpr std::uint64_t lines_of(std::size_t bytes) {
  return 1 + (bytes > kFirst ? (bytes - kFirst + kOther - 1) / kOther : 0);
}

struct alignas(64) Line {
  // a direct record's first line: front_of(…); its others: unchanged
  std::atomic<std::uint64_t> front;
  // in a direct record's first line: the number of messages before it (u64), and kFirst bytes
  std::array<std::byte, kOther> rest;
};
static_assert(sizeof(Line) == 64 && kFirst + sizeof(std::uint64_t) == kOther &&
              std::atomic<std::uint64_t>::is_always_lock_free);

/// A direct record of so many bytes that begins at a line, of all since the beginning.
inline constexpr std::uint64_t front_of(std::uint64_t line, std::size_t bytes) {
  return (line + 1) << 16 | bytes;
}
inline constexpr bool is_front_of(std::uint64_t front, std::uint64_t line) {
  return front >> 16 == (line + 1) << 16 >> 16;
}
inline constexpr std::size_t bytes_of(std::uint64_t front) { return front & 0xffff; }
// no line has that number within a century
inline constexpr std::uint64_t kClosed = ~std::uint64_t{0};

}  // namespace direct

/// Each word in a line of its own: the reader writes it.
struct DirectWords {
  alignas(128) std::atomic<std::uint64_t> open;      // 1: may be written to, since then
  alignas(128) std::atomic<std::uint64_t> read;      // gives back the lines before it
  alignas(128) std::atomic<std::uint64_t> messages;  // messages that the reader has had
};

class DirectWriter {
 public:
  DirectWriter(DirectWords& words, direct::Line* lines) : words_(&words), lines_(lines) {}
  /// False: it is not in, for the ring is not open, or has no room; or messages are on their way
  /// before it, and it `may_wait` for none.
  bool write(std::uint64_t after, std::span<const std::byte> record, bool may_wait = true);

 private:
  DirectWords* words_;
  direct::Line* lines_;
  std::uint64_t written_ = 0;     // lines, ours
  std::uint64_t read_there_ = 0;  // by the other, at least
};

/// Opened once.
class DirectReader final : public DirectSource {
 public:
  DirectReader(DirectWords& words, direct::Line* lines)
      : words_(&words), lines_(lines), record_(new std::byte[direct::kMost]) {}
  void open(std::uint64_t messages) override;
  void have_come(std::uint64_t messages) override;
  void close() override;
  void look() override;
  std::optional<DirectRecord> first() override;
  void take() override;
  /// Returns true if a direct record is there; false while the writer may not write.
  bool has_any() const {
    return state_ == State::open && !is_broken_ &&
           (has_first() || direct::is_front_of(front_at(read_), read_));
  }
  /// The first has been looked at, and was not taken: it waits for messages.
  bool has_first() const { return whole_ != 0; }
  bool has_news() const { return !has_first() && has_any(); }
  /// The other process has written an impossible value.
  bool is_broken() const { return is_broken_; }

 private:
  enum class State : std::uint8_t { never_open, open, closed };

  direct::Line& line(std::uint64_t number) const { return lines_[number % direct::kLines]; }
  // seq_cst: a thread that is about to sleep announced it before (shared_rings.hpp). It compiles to
  // a plain load.
  std::uint64_t front_at(std::uint64_t number) const {
    return line(number).front.load(std::memory_order_seq_cst);
  }
  std::uint64_t lines_at(std::uint64_t number, std::uint64_t front, std::uint64_t end);

  DirectWords* words_;
  direct::Line* lines_;
  std::uint64_t read_ = 0;  // lines, ours
  std::uint64_t end_ = 0;   // no direct record that begins there, or behind it, is looked at
  State state_ = State::never_open;
  std::uint64_t whole_ = 0;  // lines of the direct record that was looked at; 0: none
  std::uint64_t after_ = 0;
  std::size_t size_ = 0;
  bool is_broken_ = false;
  std::unique_ptr<std::byte[]> record_;
};

}  // namespace troupe
