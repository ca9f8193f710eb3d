// Memory that one process lends another of its host, a tensor at a time. The sender copies a tensor
// into the slab once, the receiver's tensor lies there, and its destruction returns the location.
//
//   OwnedDescriptor slab = make_slab(256 << 20);         // passed by a socket
//   Ref<LendingSlab> mine = LendingSlab::open(slab);     // the sender's
//   Ref<BorrowedSlab> theirs = BorrowedSlab::open(slab); // the receiver's
//   std::optional<Loan> loan = mine->take(bytes);        // none: too much is lent
//   memcpy(mine->at(*loan), …);                          // and send loan->place for each piece
//   mine->lend(*loan);                                   // it is all there
//   Ref<Buffer> memory = theirs->borrow(place);          // dropping it returns the loan
//
// A tensor may also be made there: `mine->allocate(bytes)` is its memory, and
// `mine->loan_of(tensor)` the loan, if no other holder at the sender can see it.
//
// Ownership: the sender owns a loan from `take` to `lend`, then the receiver. The receiver writes 0
// into the slot (release) after its last read. The sender reads the slot (acquire) before it uses
// the location again. The rings publish copied bytes with their location (shared_rings.hpp).
// Lifetime: a mapping lives as long as the last tensor in it.
// Trust: locations are checked, and the slab is of fixed size. A sender may change lent memory.
// Exhaustion: a receiver that returns nothing holds one slab, and then gets copies.
//
// Threads: take and allocate any of the sender's, loan_of the sending thread; borrow the
// receiver's. Buffers are destroyed on any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include <troupe/cluster/transport/net/tcp_socket.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/tensor/tensor.hpp>

namespace troupe {

/// The location of a loan, in the form in which it is sent.
struct LoanPlace {
  std::uint64_t slot = 0, position = 0, bytes = 0;
};
struct Loan {
  LoanPlace place;
  std::uint64_t room = 0;  // bytes in the slab, whole pages
};

/// Pages are the system's until they are first used. Throws unavailable if it has no such memory.
OwnedDescriptor make_slab(std::size_t bytes);

/// A slab's mapping.
class SlabMemory {
 public:
  static constexpr std::size_t kSlots = 1024, kPage = 4096;

  /// Throws data_loss for what `make_slab` did not make, unavailable if it cannot be mapped.
  explicit SlabMemory(const OwnedDescriptor& slab);
  SlabMemory(SlabMemory&& o) noexcept;
  SlabMemory& operator=(SlabMemory&&) = delete;
  ~SlabMemory();
  /// Returns the bytes that can be lent.
  std::size_t bytes() const { return bytes_ - kPage; }
  std::byte* at(std::uint64_t position) const { return base_ + kPage + position; }
  std::atomic<std::uint32_t>& slot(std::uint64_t i) const;

 private:
  std::byte* base_;
  std::size_t bytes_;
};

class LendingSlab final : public Counted {
 public:
  /// Throws as SlabMemory.
  static Ref<LendingSlab> open(const OwnedDescriptor& slab);

  /// The lowest location that is free, so that few pages are in use, and warm.
  std::optional<Loan> take(std::size_t bytes);
  std::byte* at(const Loan& loan) const { return map_.at(loan.place.position); }
  /// It is free again when the receiver has returned it, or never got its location.
  void lend(const Loan& loan);

  /// Memory for a tensor to be sent; null: there is no room.
  Ref<Buffer> allocate(std::size_t bytes);
  /// Returns the loan that the tensor is from now on; none if it lies elsewhere, or has other
  /// holders. The receiver may write it then.
  std::optional<LoanPlace> loan_of(const Tensor& tensor);

 private:
  explicit LendingSlab(const OwnedDescriptor& slab);
  std::optional<Loan> find(std::size_t bytes);
  void reclaim(std::size_t most);

  const SlabMemory map_;
  std::mutex mutex_;                             // guards what follows
  std::map<std::uint64_t, std::uint64_t> free_;  // bytes by position; no two touch
  std::vector<std::uint64_t> slots_;             // slots without a loan
  std::vector<Loan> lent_;
  std::size_t next_ = 0;                          // index in lent_ of the next loan to check
  std::map<std::uint64_t, LoanPlace> allocated_;  // by position
  class Owned;
};

class BorrowedSlab final : public Counted {
 public:
  /// Throws as SlabMemory.
  static Ref<BorrowedSlab> open(const OwnedDescriptor& slab);
  /// Does it lie in the slab?
  bool has(const LoanPlace& place) const;
  const std::byte* at(const LoanPlace& place) const { return map_.at(place.position); }
  /// The loan as a tensor's memory. `has(place)`.
  Ref<Buffer> borrow(const LoanPlace& place);
  /// A loan that no tensor lies in.
  void give_back(const LoanPlace& place) {
    map_.slot(place.slot).store(0, std::memory_order_release);
  }

 private:
  explicit BorrowedSlab(const OwnedDescriptor& slab) : map_(slab) {}
  const SlabMemory map_;
};

}  // namespace troupe
