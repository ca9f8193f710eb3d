#include <troupe/cluster/direct_ring.hpp>

#include <algorithm>
#include <cstring>

namespace troupe {

using namespace direct;

namespace {

// What stands before a record. Both numbers lie within a ring's end, for they begin at multiples of kUnit.
struct Head {
  std::uint64_t size;   // bytes
  std::uint64_t after;  // messages
};

constexpr std::size_t whole(std::size_t size) { return sizeof(Head) + (size + kUnit - 1) / kUnit * kUnit; }

}  // namespace

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(DirectWords) <= 4096);

bool DirectWriter::write(std::uint64_t after, std::span<const std::byte> record, bool may_wait) {
  if (record.empty() || record.size() > kMost) return false;
  if (!may_wait && words_->messages.load(std::memory_order_relaxed) < after) return false;
  const std::size_t bytes = whole(record.size());
  // The reader's word lies in a line that it keeps writing: it is fetched only where less than half is known to be free.
  if (written_ - read_there_ + bytes > kBytes / 2) {
    const std::uint64_t said = words_->read.load(std::memory_order_acquire);
    if (written_ - said > kBytes) return false;  // what cannot be: no room is known of
    read_there_ = said;
    if (written_ - said + bytes > kBytes) return false;
  }
  const auto copy_in = [this](std::uint64_t to, const void* from, std::size_t n) {
    const std::size_t at = to % kBytes, before_end = std::min(n, kBytes - at);
    std::memcpy(bytes_ + at, from, before_end);
    if (before_end < n) std::memcpy(bytes_, static_cast<const std::byte*>(from) + before_end, n - before_end);
  };
  const Head head{record.size(), after};
  copy_in(written_, &head, sizeof head);
  copy_in(written_ + sizeof head, record.data(), record.size());
  std::uint64_t open = written_ | kOpen;
  if (!words_->written.compare_exchange_strong(open, (written_ + bytes) | kOpen, std::memory_order_seq_cst)) return false;
  written_ += bytes;
  return true;
}

void DirectReader::open(std::uint64_t messages) {
  if (is_open_) return;
  is_open_ = true;
  have_come(messages);
  words_->written.fetch_or(kOpen, std::memory_order_seq_cst);
}

void DirectReader::have_come(std::uint64_t messages) { words_->messages.store(messages, std::memory_order_relaxed); }

void DirectReader::close() {
  if (!is_open_) return;
  is_open_ = false;
  end_ = words_->written.fetch_and(~kOpen, std::memory_order_seq_cst) & ~(kUnit - 1);
}

void DirectReader::look() {
  if (is_open_) end_ = end();
}

void DirectReader::copy_out(std::uint64_t from, void* to, std::size_t bytes) const {
  const std::size_t at = from % kBytes, before_end = std::min(bytes, kBytes - at);
  std::memcpy(to, bytes_ + at, before_end);
  if (before_end < bytes) std::memcpy(static_cast<std::byte*>(to) + before_end, bytes_, bytes - before_end);
}

std::optional<DirectRecord> DirectReader::first() {
  if (whole_ == 0) {
    const std::uint64_t there = end_ - read_;
    if (there == 0 || is_broken_) return {};
    Head head{};
    if (there > kBytes || there < sizeof head) {
      is_broken_ = true;
      return {};
    }
    copy_out(read_, &head, sizeof head);
    if (head.size == 0 || head.size > kMost || whole(head.size) > there) {
      is_broken_ = true;
      return {};
    }
    copy_out(read_ + sizeof head, record_.get(), head.size);
    whole_ = whole(head.size);
    size_ = head.size;
    after_ = head.after;
  }
  return DirectRecord{after_, {record_.get(), size_}};
}

void DirectReader::take() {
  read_ += whole_;
  whole_ = 0;
  words_->read.store(read_, std::memory_order_release);
}

}  // namespace troupe
