// A ring of small records in memory that two processes share, for one direction: what a peer of the same host is sent without a
// frame, an acknowledgement or a copy that is kept (`Transport::send_direct`).
//
// Nothing is lost in memory, so nothing need be repeated; but a reader may give a ring up, with its connection, while its writer still
// writes. Whether a record is in is therefore one step: the word that says how far is written also says that the ring is open, the
// writer moves it by compare-and-swap, and only while it is open; the reader opens it, and takes that back when it gives it up, and then reads what is in.
// So what has been published is read, and what has not is known to its writer, who sends it as a message.
//
// Each record says behind how many messages it comes; one whose messages have not come stays where it is, with all behind it.
//
// The other process is not trusted: as in shared_rings.hpp, and a record is copied out before anything of it is looked at but its size.
//
// Threads: one on either side.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <troupe/cluster/carrier.hpp>

namespace troupe {

/// Each word in a line of its own: one process writes it, the other reads it.
struct DirectWords {
  alignas(128) std::atomic<std::uint64_t> written;  // positions count bytes since the beginning, by kUnit; the lowest bit: it is open
  alignas(128) std::atomic<std::uint64_t> read;     // gives back the bytes before it
  alignas(128) std::atomic<std::uint64_t> messages;  // that the reader has had
};

namespace direct {

inline constexpr std::size_t kBytes = 64 << 10;  // of a ring
inline constexpr std::size_t kUnit = 8;
inline constexpr std::size_t kMost = 4 << 10;  // bytes of a record
inline constexpr std::uint64_t kOpen = 1;

}  // namespace direct

class DirectWriter {
 public:
  DirectWriter(DirectWords& words, std::byte* bytes) : words_(&words), bytes_(bytes) {}
  /// False: it is not in, for the ring is not open, or has no room; or messages are on their way before it, and it `may_wait` for none.
  bool write(std::uint64_t after, std::span<const std::byte> record, bool may_wait = true);

 private:
  DirectWords* words_;
  std::byte* bytes_;
  std::uint64_t written_ = 0;     // ours
  std::uint64_t read_there_ = 0;  // by the other, at least
};

class DirectReader final : public DirectSource {
 public:
  DirectReader(DirectWords& words, std::byte* bytes) : words_(&words), bytes_(bytes), record_(new std::byte[direct::kMost]) {}
  void open(std::uint64_t messages) override;
  void have_come(std::uint64_t messages) override;
  void close() override;
  void look() override;
  std::optional<DirectRecord> first() override;
  void take() override;
  /// Nothing is looked for where nobody may write.
  bool has_any() const { return is_open_ && !is_broken_ && end() != read_; }
  /// The first has been looked at, and was not taken: it waits for messages.
  bool has_first() const { return whole_ != 0; }
  bool has_news() const { return !has_first() && has_any(); }
  /// The other has said what cannot be.
  bool is_broken() const { return is_broken_; }

 private:
  // seq_cst: who is about to sleep has said so before (shared_rings.hpp). It is a plain load all the same.
  std::uint64_t end() const { return words_->written.load(std::memory_order_seq_cst) & ~(direct::kUnit - 1); }
  void copy_out(std::uint64_t from, void* to, std::size_t bytes) const;

  DirectWords* words_;
  std::byte* bytes_;
  std::uint64_t read_ = 0;  // ours
  std::uint64_t end_ = 0;   // as it was looked at
  bool is_open_ = false;
  std::size_t whole_ = 0;   // bytes in the ring of the record that was looked at; 0: none
  std::uint64_t after_ = 0;
  std::size_t size_ = 0;
  bool is_broken_ = false;
  std::unique_ptr<std::byte[]> record_;
};

}  // namespace troupe
