#include <troupe/cluster/transport/channel/direct_ring.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

namespace troupe {

using namespace direct;

bool DirectWriter::write(std::uint64_t after, std::span<const std::byte> record, bool may_wait) {
  if (record.empty() || record.size() > kMost || words_->open.load(std::memory_order_relaxed) == 0)
    return false;
  if (!may_wait && words_->messages.load(std::memory_order_relaxed) < after) return false;
  const std::uint64_t lines = lines_of(record.size());
  // The reader's word lies in a line that it keeps writing: it is fetched only where less than half
  // is known to be free.
  if (written_ - read_there_ + lines > kLines / 2) {
    const std::uint64_t said = words_->read.load(std::memory_order_acquire);
    if (written_ - said > kLines) return false;  // impossible in a correct peer; counts as no room
    read_there_ = said;
    if (written_ - said + lines > kLines) return false;
  }
  direct::Line& first = lines_[written_ % kLines];
  std::uint64_t before = first.front.load(std::memory_order_relaxed);
  if (before == kClosed) return false;
  std::memcpy(first.rest.data(), &after, sizeof after);
  std::size_t done = std::min(record.size(), kFirst);
  std::memcpy(first.rest.data() + sizeof after, record.data(), done);
  for (std::uint64_t i = 1; i < lines; ++i) {
    const std::size_t part = std::min(record.size() - done, kOther);
    std::memcpy(lines_[(written_ + i) % kLines].rest.data(), record.data() + done, part);
    done += part;
  }
  if (!first.front.compare_exchange_strong(before, front_of(written_, record.size()),
                                           std::memory_order_seq_cst))
    return false;
  written_ += lines;
  return true;
}

void DirectReader::open(std::uint64_t messages) {
  if (state_ != State::never_open) return;
  state_ = State::open;
  have_come(messages);
  words_->open.store(1, std::memory_order_relaxed);
}

void DirectReader::have_come(std::uint64_t messages) {
  words_->messages.store(messages, std::memory_order_relaxed);
}

void DirectReader::look() {
  if (state_ == State::open) end_ = read_ + kLines;
}

// Returns the lines of the direct record that begins there, of those before `end`; 0: impossible.
std::uint64_t DirectReader::lines_at(std::uint64_t number, std::uint64_t front, std::uint64_t end) {
  const std::size_t bytes = bytes_of(front);
  const std::uint64_t lines = lines_of(bytes);
  if (bytes != 0 && bytes <= kMost && lines <= end - number) return lines;
  is_broken_ = true;
  return 0;
}

void DirectReader::close() {
  if (std::exchange(state_, State::closed) != State::open) return;
  const std::uint64_t full = read_ + kLines;
  std::uint64_t at = read_ + whole_;
  while (at < full && !is_broken_) {
    std::uint64_t front = front_at(at);
    if (is_front_of(front, at)) at += lines_at(at, front, full);
    else if (line(at).front.compare_exchange_strong(front, kClosed, std::memory_order_seq_cst))
      break;
    else is_broken_ = !is_front_of(front, at);  // nothing else is written there
  }
  end_ = at;
}

std::optional<DirectRecord> DirectReader::first() {
  if (whole_ == 0) {
    if (read_ >= end_ || is_broken_) return {};
    const std::uint64_t front = front_at(read_);
    if (!is_front_of(front, read_)) return {};
    whole_ = lines_at(read_, front, read_ + kLines);
    if (whole_ == 0) return {};
    size_ = bytes_of(front);
    const std::byte* const first = line(read_).rest.data();
    std::memcpy(&after_, first, sizeof after_);
    std::memcpy(record_.get(), first + sizeof after_, kFirst);
    std::size_t done = kFirst;
    for (std::uint64_t i = 1; i < whole_; ++i, done += kOther)
      std::memcpy(record_.get() + done, line(read_ + i).rest.data(),
                  std::min(kOther, kMost - done));
  }
  return DirectRecord{after_, {record_.get(), size_}};
}

// Once it is closed nothing is given back: a full ring stays full.
void DirectReader::take() {
  read_ += std::exchange(whole_, 0);
  if (state_ == State::open) words_->read.store(read_, std::memory_order_release);
}

}  // namespace troupe
