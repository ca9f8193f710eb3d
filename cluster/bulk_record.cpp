#include <troupe/cluster/bulk_record.hpp>

#include <algorithm>
#include <bit>
#include <cstring>

namespace troupe {

static_assert(std::endian::native == std::endian::little);

// ---- out

BulkWriter::BulkWriter(const std::optional<SealKeys>& keys) {
  if (keys) sealer_.emplace(keys->out);
}

namespace {

std::array<std::byte, kBulkPrefix> prefix_of(const OutFrame& frame) {
  std::array<std::byte, kBulkPrefix> prefix{};
  const auto header = static_cast<std::uint32_t>(frame.header.size());
  const std::uint64_t bulk = frame.bulk_bytes;
  std::memcpy(prefix.data(), &header, sizeof header);
  std::memcpy(prefix.data() + 8, &bulk, sizeof bulk);
  return prefix;
}

iovec piece(const void* data, std::size_t bytes) { return {const_cast<void*>(data), bytes}; }

}  // namespace

std::size_t BulkWriter::pieces(std::span<iovec> most) {
  if (!sealer_) return plain_pieces(most);
  if (box_sent_ == box_.size() && !queue_.empty()) seal_next();
  if (box_sent_ == box_.size()) return 0;
  most[0] = piece(box_.data() + box_sent_, box_.size() - box_sent_);
  return 1;
}

std::size_t BulkWriter::plain_pieces(std::span<iovec> most) {
  std::size_t n = 0, skip = sent_;
  for (std::size_t i = 0; i < queue_.size() && n + 3 <= most.size(); ++i) {
    const OutFrame& frame = *queue_[i];
    if (prefixes_.size() <= i) prefixes_.push_back(prefix_of(frame));
    for (const iovec whole : {piece(prefixes_[i].data(), kBulkPrefix), piece(frame.header.data(), frame.header.size()), piece(frame.bulk, frame.bulk_bytes)}) {
      const std::size_t gone = std::min(skip, whole.iov_len);
      skip -= gone;
      if (gone < whole.iov_len) most[n++] = {static_cast<std::byte*>(whole.iov_base) + gone, whole.iov_len - gone};
    }
  }
  return n;
}

void BulkWriter::wrote(std::size_t bytes) {
  if (!sealer_) return wrote_plain(bytes);
  box_sent_ += bytes;
  if (box_sent_ == box_.size() && header_is_sealed_ && sent_ == queue_.front()->bulk_bytes) {
    queue_.pop_front();
    sent_ = 0;
    header_is_sealed_ = false;
  }
}

void BulkWriter::wrote_plain(std::size_t bytes) {
  sent_ += bytes;
  while (!queue_.empty()) {
    const std::size_t whole = kBulkPrefix + queue_.front()->header.size() + queue_.front()->bulk_bytes;
    if (sent_ < whole) return;
    sent_ -= whole;
    queue_.pop_front();
    prefixes_.pop_front();
  }
}

void BulkWriter::seal_next() {
  const OutFrame& frame = *queue_.front();
  box_sent_ = 0;
  if (!header_is_sealed_) {
    const auto prefix = prefix_of(frame);
    box_.resize(kBulkPrefix + frame.header.size() + kSealTagBytes);
    std::memcpy(box_.data(), prefix.data(), kBulkPrefix);
    sealer_->seal(prefix, frame.header, std::span(box_).subspan(kBulkPrefix));
    header_is_sealed_ = true;
    return;
  }
  const std::size_t bytes = std::min(kBoxBytes, frame.bulk_bytes - sent_);
  box_.resize(bytes + kSealTagBytes);
  sealer_->seal({}, {static_cast<const std::byte*>(frame.bulk) + sent_, bytes}, box_);
  sent_ += bytes;
  copied_bytes_ += bytes;
}

// ---- in

BulkReader::BulkReader(Router& router, Connection connection, const std::optional<SealKeys>& keys, bool is_copy)
    : router_(router), connection_(connection), is_copy_(is_copy || keys) {
  if (keys) opener_.emplace(keys->in);
}

std::span<std::byte> BulkReader::room() {
  switch (state_) {
    case State::prefix: return std::span(prefix_).subspan(at_);
    case State::header: return std::span(header_).subspan(at_);
    case State::waiting: return {};
    case State::bulk: break;
  }
  if (!opener_) return router_.bulk_room(connection_, bulk_left_);
  box_.resize(std::min<std::uint64_t>(kBoxBytes, bulk_left_) + kSealTagBytes);
  return std::span(box_).subspan(at_);
}

bool BulkReader::got(std::size_t bytes) {
  if (state_ == State::bulk && !opener_) {
    bulk_left_ -= bytes;
    if (bulk_left_ == 0) state_ = State::prefix;
    router_.bulk_filled(connection_, bytes);
    return router_.knows(connection_);
  }
  at_ += bytes;
  switch (state_) {
    case State::prefix: {
      if (at_ < kBulkPrefix) return true;
      std::uint32_t header, zero;
      std::memcpy(&header, prefix_.data(), sizeof header);
      std::memcpy(&zero, prefix_.data() + 4, sizeof zero);
      std::memcpy(&bulk_left_, prefix_.data() + 8, sizeof bulk_left_);
      header_bytes_ = header;
      at_ = 0;
      if (zero != 0 || header == 0 || header > Router::kBulkHeader) {
        router_.dropped();
        return false;
      }
      header_.resize(header_bytes_ + seal_bytes());
      state_ = State::header;
      return true;
    }
    case State::header: return at_ < header_.size() || header_is_there();
    case State::waiting: return true;
    case State::bulk: return at_ < box_.size() || box_is_there();
  }
  return false;
}

bool BulkReader::header_is_there() {
  at_ = 0;
  if (opener_) {
    plain_.resize(header_bytes_);
    if (!opener_->open(++boxes_, prefix_, header_, plain_).ok()) {
      router_.dropped();
      return false;
    }
    header_.swap(plain_);
  }
  return begin();
}

bool BulkReader::begin() {
  switch (router_.bulk_frame(connection_, std::span(header_).first(header_bytes_), bulk_left_, is_copy_)) {
    case Router::BulkTurn::taken: state_ = State::prefix; return true;
    case Router::BulkTurn::open: state_ = State::bulk; return true;
    case Router::BulkTurn::later: state_ = State::waiting; return true;
    case Router::BulkTurn::broken: break;
  }
  return false;
}

bool BulkReader::retry() { return state_ != State::waiting || begin(); }

bool BulkReader::box_is_there() {
  at_ = 0;
  std::size_t bytes = box_.size() - kSealTagBytes;
  // Straight to the tensor, unless the box goes to several.
  const std::span<std::byte> room = router_.bulk_room(connection_, bytes);
  const bool is_direct = room.size() == bytes;
  if (!is_direct) plain_.resize(bytes);
  const std::span<std::byte> plain = is_direct ? room : std::span(plain_).first(bytes);
  if (!opener_->open(++boxes_, {}, box_, plain).ok()) {
    router_.dropped();
    return false;
  }
  bulk_left_ -= bytes;
  if (bulk_left_ == 0) state_ = State::prefix;
  if (is_direct) {
    router_.bulk_filled(connection_, bytes);
  } else {
    for (const std::byte* from = plain_.data(); bytes > 0;) {
      const std::span<std::byte> to = router_.bulk_room(connection_, bytes);
      if (to.empty()) return false;
      std::memcpy(to.data(), from, to.size());
      from += to.size();
      bytes -= to.size();
      router_.bulk_filled(connection_, to.size());
    }
  }
  return router_.knows(connection_);
}

}  // namespace troupe
