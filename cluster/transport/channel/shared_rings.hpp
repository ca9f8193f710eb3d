// Two rings of bytes in memory that two processes of one host share, one for each direction, and
// two of small direct records (direct_ring.hpp).
//
//   SharedRings mine = SharedRings::create();
//   SharedRings theirs = SharedRings::open(descriptor);  // passed by a socket
//   while (!(to = mine.space()).empty()) mine.publish(copy to it);
//   theirs.bytes(), theirs.consume(n)
//
// A process that finds its ring full, or empty, may sleep: it announces it (`sleep_…`), looks once
// more, and waits for the bell, which the two have beside this (bulk_sockets.hpp). publish and
// consume return whether to ring it. In the order of the seq_cst operations either the sleeper sees
// the change, or the other sees the sleeper.
//
// The other process is not trusted. Each process keeps its own position to itself and writes it for
// the other to read. A position from the other is checked to be within the ring. The memory is of
// fixed size, so that neither process can shrink it under a reader.
//
// Threads: one on either side; but direct records may be written by another, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <troupe/cluster/transport/channel/direct_ring.hpp>
#include <troupe/cluster/transport/net/tcp_socket.hpp>

namespace troupe {

class SharedRings {
 public:
  // bytes of one direction: they stay in a cache that two cores share
  static constexpr std::size_t kBytes = 1 << 20;

  /// Throws unavailable if the system has no such memory.
  static SharedRings create();
  /// Throws data_loss for what `create` did not make.
  static SharedRings open(OwnedDescriptor memory);
  SharedRings(SharedRings&& o) noexcept = default;
  SharedRings& operator=(SharedRings&&) = delete;
  int descriptor() const { return memory_.get(); }
  /// The other process has written an impossible value.
  bool is_broken() const { return is_broken_; }

  /// Returns the memory for the next bytes, without a gap. The reader's position is loaded only if
  /// less than half is known to be free. Its word lies in a line that the reader keeps writing, and
  /// to fetch that line costs as much as to write a small message.
  std::span<std::byte> space();
  /// So many are written; true: ring the bell.
  bool publish(std::size_t bytes);
  /// Requests a ring of the bell when there is space; false: there is space now.
  bool sleep_until_space();

  /// Bytes that have come, without a gap.
  std::span<const std::byte> bytes();
  bool consume(std::size_t bytes);
  /// Also waits for direct records, but not for one that waits for messages. `looks_at_bytes`:
  /// false if the bytes in the ring wait too.
  bool sleep_until_bytes(bool looks_at_bytes = true);
  void wake_up();

  DirectWriter& direct_out() { return direct_out_; }
  DirectReader& direct_in() { return direct_in_; }
  const DirectReader& direct_in() const { return direct_in_; }
  /// After a direct record was written; true: ring the bell.
  bool wakes_reader();

 private:
  struct Direction;
  struct Unmap {
    void operator()(std::byte* base) const;
  };
  using Mapping = std::unique_ptr<std::byte, Unmap>;
  struct Parts;
  SharedRings(OwnedDescriptor memory, Mapping mapping, const Parts& parts);
  static SharedRings map(OwnedDescriptor memory, bool is_first);

  OwnedDescriptor memory_;
  Mapping base_;
  Direction *out_ = nullptr, *in_ = nullptr;
  std::byte *out_bytes_ = nullptr, *in_bytes_ = nullptr;
  std::uint64_t written_ = 0, read_ = 0;  // ours
  std::uint64_t read_there_ = 0;          // by the other, at least
  bool is_broken_ = false;
  DirectWriter direct_out_;
  DirectReader direct_in_;
};

}  // namespace troupe
