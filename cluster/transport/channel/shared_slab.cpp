#include <troupe/cluster/transport/channel/shared_slab.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>

#include <troupe/cluster/transport/net/fixed_memory.hpp>

namespace troupe {

namespace {

constexpr std::size_t kLooks = 16;  // loans looked at each time that one is made
constexpr std::size_t kMostBytes = std::size_t(1) << 40;

static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
              sizeof(std::atomic<std::uint32_t>) * SlabMemory::kSlots == SlabMemory::kPage);

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + SlabMemory::kPage - 1) / SlabMemory::kPage * SlabMemory::kPage;
}

/// Returns the bytes of a valid slab: memory of fixed size with room to lend.
std::size_t checked_bytes(const OwnedDescriptor& memory) {
  const std::size_t bytes = fixed_memory_bytes(memory).value_or(0);
  if (bytes <= SlabMemory::kPage || bytes % SlabMemory::kPage != 0 || bytes > kMostBytes)
    throw Error(Code::data_loss, "the shared slab does not have a fixed size of whole pages");
  return bytes;
}

/// The memory of one loan as an allocator for the buffer on it; ends with the buffer.
class Borrowed final : public Allocator {
 public:
  Borrowed(Ref<BorrowedSlab> slab, const LoanPlace& place)
      : slab_(std::move(slab)), place_(place) {}
  void* allocate(std::size_t) override { return const_cast<std::byte*>(slab_->at(place_)); }
  void deallocate(void*, std::size_t) noexcept override {
    slab_->give_back(place_);
    delete this;
  }
  bool has_room(std::size_t) const override { return false; }
  AllocatorCounters counters() const override { return {}; }

 private:
  const Ref<BorrowedSlab> slab_;
  const LoanPlace place_;
};

}  // namespace

// ---- the mapping

OwnedDescriptor make_slab(std::size_t bytes) {
  const std::size_t whole = SlabMemory::kPage + whole_pages(std::max<std::size_t>(bytes, 1));
  return fixed_memory("troupe slab", whole);
}

SlabMemory::SlabMemory(const OwnedDescriptor& slab) : bytes_(checked_bytes(slab)) {
  void* at =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, slab.get(), 0);
  if (at == MAP_FAILED)
    throw Error(Code::unavailable,
                fmt::format("shared memory cannot be mapped: {}", std::strerror(errno)));
  base_ = static_cast<std::byte*>(at);
}

SlabMemory::SlabMemory(SlabMemory&& o) noexcept
    : base_(std::exchange(o.base_, nullptr)), bytes_(o.bytes_) {}

SlabMemory::~SlabMemory() {
  if (base_) munmap(base_, bytes_);
}

std::atomic<std::uint32_t>& SlabMemory::slot(std::uint64_t i) const {
  // The memory is zero, which is a valid state of these lock-free atomics: there is nothing to
  // construct.
  return *std::launder(reinterpret_cast<std::atomic<std::uint32_t>*>(base_) + i);
}

// ---- the lender

/// A tensor's memory at the sender. Its end is that of the sender's interest; the slot tells of the
/// receiver's.
class LendingSlab::Owned final : public Allocator {
 public:
  Owned(Ref<LendingSlab> slab, const Loan& loan) : slab_(std::move(slab)), loan_(loan) {}
  void* allocate(std::size_t) override { return slab_->at(loan_); }
  void deallocate(void*, std::size_t) noexcept override {
    {
      std::lock_guard lock(slab_->mutex_);
      slab_->allocated_.erase(loan_.place.position);
    }
    slab_->lend(loan_);
    delete this;
  }
  bool has_room(std::size_t) const override { return false; }
  AllocatorCounters counters() const override { return {}; }

 private:
  const Ref<LendingSlab> slab_;
  const Loan loan_;
};

Ref<LendingSlab> LendingSlab::open(const OwnedDescriptor& slab) {
  return Ref<LendingSlab>(new LendingSlab(slab));
}

LendingSlab::LendingSlab(const OwnedDescriptor& slab) : map_(slab) {
  free_.emplace(0, map_.bytes());
  for (std::uint64_t i = SlabMemory::kSlots; i > 0; --i) slots_.push_back(i - 1);
  lent_.reserve(SlabMemory::kSlots);
}

std::optional<Loan> LendingSlab::take(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  std::optional<Loan> loan = find(bytes);
  // shown with the location
  if (loan) map_.slot(loan->place.slot).store(1, std::memory_order_relaxed);
  return loan;
}

void LendingSlab::lend(const Loan& loan) {
  std::lock_guard lock(mutex_);
  lent_.push_back(loan);
}

Ref<Buffer> LendingSlab::allocate(std::size_t bytes) {
  std::optional<Loan> loan;
  {
    std::lock_guard lock(mutex_);
    loan = find(bytes);
    if (!loan) return {};
    allocated_.emplace(loan->place.position, loan->place);
  }
  retain();
  Ref<LendingSlab> self(this);
  return Buffer::allocate(*new Owned(std::move(self), *loan), bytes);
}

std::optional<LoanPlace> LendingSlab::loan_of(const Tensor& tensor) {
  const auto at = reinterpret_cast<std::uintptr_t>(tensor.raw()),
             first = reinterpret_cast<std::uintptr_t>(map_.at(0));
  if (at < first || at - first >= map_.bytes() || !tensor.is_sole_holder()) return {};
  std::lock_guard lock(mutex_);
  const auto found = allocated_.find(at - first);
  if (found == allocated_.end() || found->second.bytes != tensor.bytes()) return {};
  map_.slot(found->second.slot).store(1, std::memory_order_relaxed);  // shown with the location
  return found->second;
}

std::optional<Loan> LendingSlab::find(std::size_t bytes) {
  const std::size_t room = whole_pages(bytes);
  const auto fits = [&](const auto& place) { return place.second >= room; };
  reclaim(kLooks);
  auto at = std::find_if(free_.begin(), free_.end(), fits);
  if (at == free_.end() || slots_.empty()) {
    reclaim(lent_.size());
    at = std::find_if(free_.begin(), free_.end(), fits);
  }
  if (at == free_.end() || slots_.empty() || bytes == 0) return {};
  const Loan loan{.place = {.slot = slots_.back(), .position = at->first, .bytes = bytes},
                  .room = room};
  slots_.pop_back();
  const std::uint64_t rest = at->second - room;
  free_.erase(at);
  if (rest != 0) free_.emplace(loan.place.position + room, rest);
  return loan;
}

/// Takes back returned loans, of up to so many loans.
void LendingSlab::reclaim(std::size_t most) {
  for (most = std::min(most, lent_.size()); most > 0 && !lent_.empty(); --most) {
    if (next_ >= lent_.size()) next_ = 0;
    const Loan loan = lent_[next_];
    if (map_.slot(loan.place.slot).load(std::memory_order_acquire) != 0) {
      ++next_;
      continue;
    }
    lent_[next_] = lent_.back();
    lent_.pop_back();
    slots_.push_back(loan.place.slot);
    auto [at, is_new] = free_.emplace(loan.place.position, loan.room);
    if (const auto after = std::next(at);
        after != free_.end() && at->first + at->second == after->first) {
      at->second += after->second;
      free_.erase(after);
    }
    if (at != free_.begin())
      if (const auto before = std::prev(at); before->first + before->second == at->first) {
        before->second += at->second;
        free_.erase(at);
      }
  }
}

// ---- the borrower

Ref<BorrowedSlab> BorrowedSlab::open(const OwnedDescriptor& slab) {
  return Ref<BorrowedSlab>(new BorrowedSlab(slab));
}

bool BorrowedSlab::has(const LoanPlace& place) const {
  return place.slot < SlabMemory::kSlots && place.position % SlabMemory::kPage == 0 &&
         place.position <= map_.bytes() && place.bytes <= map_.bytes() - place.position;
}

Ref<Buffer> BorrowedSlab::borrow(const LoanPlace& place) {
  retain();
  Ref<BorrowedSlab> self(this);
  return Buffer::allocate(*new Borrowed(std::move(self), place), place.bytes);
}

}  // namespace troupe
