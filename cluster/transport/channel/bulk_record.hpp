// Wire frames as bulk records in the byte stream of a bulk channel, written from and read into the
// memory where they lie.
//
//   BulkWriter out(keys);  out.add(frame);  n = out.pieces(iov);  out.wrote(writev(fd, iov, n));
//   BulkReader in(router, connection, keys);
//   while (n = in.rooms(iov)) in.got(readv(fd, iov, n));  // payload goes straight to its tensor
//
// A bulk record: header bytes (u32), bulk place (u32), bulk bytes (u64), little-endian; the header;
// the bulk. Bulk place 0 is the stream itself. Bulk place 1 is a slab (shared_slab.hpp), and the
// location precedes the header: slot, position, bytes of the loan, offset into it (u64 each). If a
// tensor goes by loan, its first bulk record takes the loan and its last lends it:
// OutLane never sends the end of a begun tensor inline.
//
// With keys (seal.hpp) the header is a box, whose `about` is those sixteen bytes, and the bulk is
// one box after another, of up to kBoxBytes each. Boxes are numbered by counting, so that none can
// be left out, repeated or exchanged. Opening the boxes is the one copy, besides bytes that arrived
// with the head.
//
// Threads: the transport's.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <sys/uio.h>

#include <troupe/cluster/transport/channel/shared_slab.hpp>
#include <troupe/cluster/transport/net/seal.hpp>
#include <troupe/cluster/transport/router.hpp>

namespace troupe {

inline constexpr std::size_t kBulkPrefix = 16, kBulkPlace = 32;
// stays in the cache between the socket and the tensor
inline constexpr std::size_t kBoxBytes = 128 << 10;
// so much is read where less is awaited, or behind a payload: a small bulk record costs one call of
// the kernel
inline constexpr std::size_t kReadAhead = 1 << 10;

class BulkWriter {
 public:
  explicit BulkWriter(const std::optional<SealKeys>& keys);
  /// Tensors go by this slab from now on, while it has room.
  void use(Ref<LendingSlab> slab) { slab_ = std::move(slab); }
  const Ref<LendingSlab>& slab() const { return slab_; }
  /// Appends a wire frame. An urgent wire frame goes before all others, but for the wire frame that
  /// may have begun.
  void add(const Ref<OutFrame>& frame);
  bool is_empty() const { return queue_.empty(); }
  /// Sets the next bytes, in up to `most.size()` pieces, and returns the number of pieces. Throws
  /// resource_exhausted when a key is used up.
  std::size_t pieces(std::span<iovec> most);
  /// Notes that so many of these bytes are written.
  void wrote(std::size_t bytes);
  std::uint64_t copied_bytes() const { return copied_bytes_; }

 private:
  struct Prefix {
    std::array<std::byte, kBulkPrefix + kBulkPlace> bytes{};
    std::size_t size = kBulkPrefix;
    bool is_lent = false;
    std::size_t record(const OutFrame& frame) const {
      return size + frame.header.size() + (is_lent ? 0 : frame.bulk_bytes);
    }
  };
  /// A tensor some of whose pieces are in the slab.
  struct Lending {
    std::optional<LoanPlace> place;
    std::optional<Loan> loan;  // if it is copied there
    const Tensor* whole = nullptr;
    std::size_t done = 0;
  };
  static Prefix prefix_of(const OutFrame& frame);
  Prefix prepare(const OutFrame& frame);
  /// The next box of the first wire frame into box_.
  void seal_next();
  std::size_t plain_pieces(std::span<iovec> most);
  void wrote_plain(std::size_t bytes);

  std::deque<Ref<OutFrame>> queue_;
  // prefixes of the first wire frames in queue_; a deque keeps them in place
  std::deque<Prefix> prefixes_;
  std::size_t sent_ = 0;  // bytes sent of the first bulk record; if sealed, of its bulk
  Ref<LendingSlab> slab_;
  std::array<Lending, wire::kLanes> lending_;
  std::optional<Sealer> sealer_;
  std::vector<std::byte> box_;
  std::size_t box_sent_ = 0;
  bool header_is_sealed_ = false;  // true: the first wire frame's header is sealed
  std::uint64_t copied_bytes_ = 0;
};

/// A bulk record's head and the bytes that arrive with it are read into one buffer, and the router
/// gets the header from there. So small messages, which are all header, are copied once, to their
/// tensors. Payload that arrives with the head is copied to its tensor too. If one read ends within
/// a bulk record, that bulk record's bytes are copied to the front.
class BulkReader {
 public:
  /// `is_copy`: bytes are copied into `room` in user space.
  BulkReader(Router& router, Connection connection, const std::optional<SealKeys>& keys,
             bool is_copy = false);
  /// Returns the memory for the next bytes, no more than the bulk record still needs. Empty: not
  /// now.
  std::span<std::byte> room();
  /// Returns the number of `pieces` that it sets: the memory of `room`, and perhaps memory behind
  /// it for bytes that may arrive together with them.
  std::size_t rooms(std::span<iovec, 2> pieces);
  /// Notes that so many bytes have arrived; false if the connection is to be closed.
  bool got(std::size_t bytes);
  /// The other end lends from this.
  void use(Ref<BorrowedSlab> slab) { slab_ = std::move(slab); }
  /// True if a wire frame waits for one of the connection.
  bool is_waiting() const { return state_ == State::waiting; }
  /// Checks whether its turn has come; false if the connection is to be closed.
  bool retry();

 private:
  enum class State { prefix, place, header, waiting, bulk };

  std::size_t there() const { return end_ - begin_; }
  /// Returns the space behind the bytes that are there.
  std::span<std::byte> space(std::size_t bytes);
  /// Processes the bytes that are there.
  bool take();
  bool prefix_is_there();
  bool place_is_there();
  bool header_is_there();
  bool take_lent();
  bool begin();
  bool bulk_came(std::size_t bytes);
  bool box_is_there();

  Router& router_;
  const Connection connection_;
  const bool is_copy_;
  State state_ = State::prefix;
  std::vector<std::byte> buffer_;
  // bytes in the buffer: a bulk record from its prefix on, or bytes of its bulk
  std::size_t begin_ = 0, end_ = 0;
  std::size_t awaited_ = kBulkPrefix;  // bytes of the bulk record that the next state needs
  std::size_t header_bytes_ = 0;       // as the prefix announces
  std::optional<LoanPlace> place_;     // the bulk's location, if it is in a slab
  std::uint64_t place_offset_ = 0;
  Ref<BorrowedSlab> slab_;
  std::uint64_t bulk_left_ = 0;
  std::optional<Opener> opener_;
  std::uint64_t boxes_ = 0;
  std::vector<std::byte> box_, plain_;
  std::size_t in_box_ = 0;
};

}  // namespace troupe
