// What goes over a bulk channel: frames as records in a stream of bytes, written from and read into the memory where they lie.
//
//   BulkWriter out(keys);  out.add(frame);  n = out.pieces(iov);  out.wrote(writev(fd, iov, n));
//   BulkReader in(router, connection, keys);
//   for (span = in.room(); !span.empty(); span = in.room()) in.got(read(fd, span));    // payload goes straight to its tensor
//
// A record: header bytes (u32), zero (u32), bulk bytes (u64), little-endian; the header; the bulk. With keys (seal.hpp) the
// header is a box, whose `about` is those sixteen bytes, and the bulk is one box after another, of up to kBoxBytes each.
// Boxes are numbered by counting, so that none can be left out, repeated or exchanged; opening them is the one copy.
//
// Threads: the router's.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <sys/uio.h>

#include <troupe/cluster/router.hpp>
#include <troupe/cluster/seal.hpp>

namespace troupe {

inline constexpr std::size_t kBulkPrefix = 16;
inline constexpr std::size_t kBoxBytes = 128 << 10;  // stays in the cache between the socket and the tensor

class BulkWriter {
 public:
  explicit BulkWriter(const std::optional<SealKeys>& keys);
  void add(const Ref<OutFrame>& frame) { queue_.push_back(frame); }
  bool is_empty() const { return queue_.empty(); }
  /// The next bytes, in up to `most.size()` pieces; how many pieces. Throws resource_exhausted when a key is used up.
  std::size_t pieces(std::span<iovec> most);
  /// So many of these bytes are gone.
  void wrote(std::size_t bytes);
  std::uint64_t copied_bytes() const { return copied_bytes_; }

 private:
  using Prefix = std::array<std::byte, kBulkPrefix>;
  /// The next box of the first frame into box_.
  void seal_next();
  std::size_t plain_pieces(std::span<iovec> most);
  void wrote_plain(std::size_t bytes);

  std::deque<Ref<OutFrame>> queue_;
  std::deque<Prefix> prefixes_;   // of the first frames in queue_; a deque keeps them in place
  std::size_t sent_ = 0;          // of the first record; sealed: of its bulk
  std::optional<Sealer> sealer_;
  std::vector<std::byte> box_;
  std::size_t box_sent_ = 0;
  bool header_is_sealed_ = false;  // of the first frame
  std::uint64_t copied_bytes_ = 0;
};

class BulkReader {
 public:
  /// `is_copy`: what is put into `room` is copied there in user space.
  BulkReader(Router& router, Connection connection, const std::optional<SealKeys>& keys, bool is_copy = false);
  /// Where the next bytes go; empty: not now.
  std::span<std::byte> room();
  /// So many have come there; false if the connection is to be given up.
  bool got(std::size_t bytes);
  /// Is there a frame that waits for one of the connection?
  bool is_waiting() const { return state_ == State::waiting; }
  /// Looks whether its turn has come; false as above.
  bool retry();

 private:
  enum class State { prefix, header, waiting, bulk };

  bool header_is_there();
  bool begin();
  bool box_is_there();
  std::size_t seal_bytes() const { return opener_ ? kSealTagBytes : 0; }

  Router& router_;
  const Connection connection_;
  const bool is_copy_;
  State state_ = State::prefix;
  std::array<std::byte, kBulkPrefix> prefix_;
  std::vector<std::byte> header_;
  std::size_t header_bytes_ = 0;
  std::uint64_t bulk_left_ = 0;
  std::size_t at_ = 0;  // into prefix_, header_ or box_
  std::optional<Opener> opener_;
  std::uint64_t boxes_ = 0;
  std::vector<std::byte> box_, plain_;
};

}  // namespace troupe
