#include <troupe/cluster/transport/channel/bulk_record.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <utility>

namespace troupe {

static_assert(std::endian::native == std::endian::little);

// ---- out

BulkWriter::BulkWriter(const std::optional<SealKeys>& keys) {
  if (keys) sealer_.emplace(keys->cipher, keys->out, keys->boxes);
}

void BulkWriter::add(const Ref<OutFrame>& frame) {
  if (!frame->is_urgent || queue_.size() < 2) return queue_.push_back(frame);
  const auto behind = std::find_if(queue_.begin() + 1, queue_.end(),
                                   [](const Ref<OutFrame>& f) { return !f->is_urgent; });
  queue_.insert(behind, frame);
  if (prefixes_.size() > 1) prefixes_.resize(1);
}

BulkWriter::Prefix BulkWriter::prefix_of(const OutFrame& frame) {
  Prefix prefix;
  const auto header = static_cast<std::uint32_t>(frame.header.size());
  const std::uint64_t bulk = frame.bulk_bytes;
  std::memcpy(prefix.bytes.data(), &header, sizeof header);
  std::memcpy(prefix.bytes.data() + 8, &bulk, sizeof bulk);
  return prefix;
}

/// The wire frame's prefix; its bulk goes into the slab now, if it is of a tensor that has its
/// location there, or gets one.
BulkWriter::Prefix BulkWriter::prepare(const OutFrame& frame) {
  Prefix prefix = prefix_of(frame);
  if (!slab_ || !frame.whole) return prefix;
  Lending& l = lending_[frame.is_urgent ? 0 : 1];
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(frame.bulk) -
                                               static_cast<const std::byte*>(frame.whole->raw()));
  const std::size_t bytes = frame.whole->bytes();
  if (offset == 0) {
    l = {.place = slab_->loan_of(*frame.whole), .loan = {}, .whole = frame.whole, .done = 0};
    if (!l.place) l.loan = slab_->take(bytes);
    if (l.loan) l.place = l.loan->place;
  }
  if (!l.place || l.whole != frame.whole || l.done != offset) return prefix;
  if (l.loan) {
    std::memcpy(slab_->at(*l.loan) + offset, frame.bulk, frame.bulk_bytes);
    copied_bytes_ += frame.bulk_bytes;
  }
  const std::uint64_t place[] = {l.place->slot, l.place->position, l.place->bytes, offset};
  const std::uint32_t lent = 1;
  static_assert(sizeof place == kBulkPlace);
  std::memcpy(prefix.bytes.data() + 4, &lent, sizeof lent);
  std::memcpy(prefix.bytes.data() + kBulkPrefix, place, sizeof place);
  prefix.size += kBulkPlace;
  prefix.is_lent = true;
  l.done += frame.bulk_bytes;
  if (l.done == bytes) {
    if (l.loan) slab_->lend(*l.loan);
    l = {};
  }
  return prefix;
}

namespace {

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
  // With a slab one at a time: the other reads what is there while the next is copied.
  const std::size_t frames = slab_ ? std::min<std::size_t>(queue_.size(), 1) : queue_.size();
  for (std::size_t i = 0; i < frames && n + 3 <= most.size(); ++i) {
    const OutFrame& frame = *queue_[i];
    if (prefixes_.size() <= i) prefixes_.push_back(prepare(frame));
    const Prefix& prefix = prefixes_[i];
    for (const iovec whole :
         {piece(prefix.bytes.data(), prefix.size), piece(frame.header.data(), frame.header.size()),
          piece(frame.bulk, prefix.is_lent ? 0 : frame.bulk_bytes)}) {
      const std::size_t gone = std::min(skip, whole.iov_len);
      skip -= gone;
      if (gone < whole.iov_len)
        most[n++] = {static_cast<std::byte*>(whole.iov_base) + gone, whole.iov_len - gone};
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
  while (!prefixes_.empty()) {
    const std::size_t whole = prefixes_.front().record(*queue_.front());
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
    const Prefix prefix = prefix_of(frame);
    const std::span<const std::byte> about = std::span(prefix.bytes).first(kBulkPrefix);
    box_.resize(kBulkPrefix + frame.header.size() + kSealTagBytes);
    std::memcpy(box_.data(), about.data(), kBulkPrefix);
    sealer_->seal(about, frame.header, std::span(box_).subspan(kBulkPrefix));
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

BulkReader::BulkReader(Router& router, Connection connection, const std::optional<SealKeys>& keys,
                       bool is_copy)
    : router_(router), connection_(connection), is_copy_(is_copy || keys) {
  if (keys) opener_.emplace(keys->cipher, keys->in);
}

std::span<std::byte> BulkReader::space(std::size_t bytes) {
  if (buffer_.size() - end_ < bytes && begin_ != 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, there());
    router_.bulk_copied(there());
    end_ = there();
    begin_ = 0;
  }
  if (buffer_.size() - end_ < bytes) buffer_.resize(end_ + bytes);
  return std::span(buffer_).subspan(end_, bytes);
}

std::span<std::byte> BulkReader::room() {
  if (state_ == State::waiting) return {};
  if (state_ != State::bulk) return space(awaited_ - there());
  if (!opener_) return router_.bulk_room(connection_, bulk_left_);
  box_.resize(std::min<std::uint64_t>(kBoxBytes, bulk_left_) + kSealTagBytes);
  return std::span(box_).subspan(in_box_);
}

std::size_t BulkReader::rooms(std::span<iovec, 2> pieces) {
  if (state_ == State::waiting) return 0;
  if (state_ != State::bulk) {
    const std::span<std::byte> to = space(std::max(awaited_ - there(), kReadAhead));
    pieces[0] = {to.data(), to.size()};
    return 1;
  }
  const std::span<std::byte> to = room();
  if (to.empty()) return 0;
  pieces[0] = {to.data(), to.size()};
  if ((opener_ ? box_.size() - kSealTagBytes : to.size()) < bulk_left_) return 1;
  const std::span<std::byte> ahead = space(kReadAhead);
  pieces[1] = {ahead.data(), ahead.size()};
  return 2;
}

bool BulkReader::got(std::size_t bytes) {
  if (state_ != State::bulk) {
    end_ += bytes;
    return take();
  }
  const std::size_t awaited =
      std::min<std::uint64_t>(bytes, opener_ ? box_.size() - in_box_ : bulk_left_);
  end_ += bytes - awaited;
  return bulk_came(awaited) && take();
}

bool BulkReader::take() {
  for (;;) {
    if (state_ == State::waiting) return true;
    if (state_ == State::bulk) {
      if (there() == 0) return true;
      const std::span<std::byte> to = room();
      if (to.empty()) return false;
      const std::size_t n = std::min(to.size(), there());
      std::memcpy(to.data(), buffer_.data() + begin_, n);
      router_.bulk_copied(n);
      begin_ += n;
      if (!bulk_came(n)) return false;
    } else {
      if (there() < awaited_) break;
      if (!(state_ == State::prefix  ? prefix_is_there()
            : state_ == State::place ? place_is_there()
                                     : header_is_there()))
        return false;
    }
  }
  if (there() == 0) begin_ = end_ = 0;
  return true;
}

bool BulkReader::prefix_is_there() {
  const std::byte* prefix = buffer_.data() + begin_;
  std::uint32_t header, where;
  std::memcpy(&header, prefix, sizeof header);
  std::memcpy(&where, prefix + 4, sizeof where);
  std::memcpy(&bulk_left_, prefix + 8, sizeof bulk_left_);
  place_.reset();
  if (where > (slab_ ? 1 : 0) || header == 0 || header > Router::kBulkHeader) {
    router_.dropped("a record that cannot be one");
    return false;
  }
  header_bytes_ = header;
  awaited_ += where == 0 ? header + (opener_ ? kSealTagBytes : 0) : kBulkPlace;
  state_ = where == 0 ? State::header : State::place;
  return true;
}

bool BulkReader::place_is_there() {
  std::uint64_t said[4];
  std::memcpy(said, buffer_.data() + begin_ + kBulkPrefix, sizeof said);
  const LoanPlace place{.slot = said[0], .position = said[1], .bytes = said[2]};
  if (!slab_->has(place) || bulk_left_ == 0 || said[3] > place.bytes ||
      bulk_left_ > place.bytes - said[3]) {
    router_.dropped("a tensor that is not in the shared memory");
    return false;
  }
  place_ = place;
  place_offset_ = said[3];
  awaited_ += header_bytes_ + (opener_ ? kSealTagBytes : 0);
  state_ = State::header;
  return true;
}

/// The bulk is in the slab: it stays there if the tensor can, or is copied from there.
bool BulkReader::take_lent() {
  const LoanPlace place = *place_;
  const std::byte* from = slab_->at(place) + place_offset_;
  const std::uint64_t offset = place_offset_, bytes = std::exchange(bulk_left_, 0);
  state_ = State::prefix;
  const std::function<Ref<Buffer>()> borrow = [&] { return slab_->borrow(place); };
  if (router_.bulk_borrow(
          connection_,
          {.data = slab_->at(place), .bytes = place.bytes, .offset = offset, .borrow = borrow})) {
    router_.bulk_filled(connection_, bytes);
    return router_.knows(connection_);
  }
  for (std::uint64_t left = bytes; left > 0;) {
    const std::span<std::byte> to = router_.bulk_room(connection_, left);
    if (to.empty()) return false;
    std::memcpy(to.data(), from, to.size());
    from += to.size();
    left -= to.size();
    router_.bulk_filled(connection_, to.size());
  }
  if (offset + bytes == place.bytes) slab_->give_back(place);
  return router_.knows(connection_);
}

bool BulkReader::header_is_there() {
  if (opener_) {
    const std::span<const std::byte> all = std::span(buffer_).subspan(begin_, awaited_);
    plain_.resize(header_bytes_);
    if (!opener_
             ->open(++boxes_, all.first(kBulkPrefix), all.last(header_bytes_ + kSealTagBytes),
                    plain_)
             .ok()) {
      router_.dropped("a sealed header that does not open");
      return false;
    }
  }
  return begin();
}

bool BulkReader::begin() {
  const std::span<const std::byte> header =
      std::span(opener_ ? plain_ : buffer_)
          .subspan(opener_ ? 0 : begin_ + awaited_ - header_bytes_, header_bytes_);
  const Router::BulkTurn turn =
      router_.bulk_frame(connection_, header, bulk_left_, is_copy_ || place_);
  if (turn == Router::BulkTurn::broken) return false;
  if (turn == Router::BulkTurn::later) {
    state_ = State::waiting;
    return true;
  }
  begin_ += std::exchange(awaited_, kBulkPrefix);
  state_ = turn == Router::BulkTurn::taken ? State::prefix : State::bulk;
  return state_ == State::prefix || !place_ || take_lent();
}

bool BulkReader::retry() { return state_ != State::waiting || (begin() && take()); }

bool BulkReader::bulk_came(std::size_t bytes) {
  if (opener_) {
    in_box_ += bytes;
    return in_box_ < box_.size() || box_is_there();
  }
  bulk_left_ -= bytes;
  if (bulk_left_ == 0) state_ = State::prefix;
  router_.bulk_filled(connection_, bytes);
  return router_.knows(connection_);
}

bool BulkReader::box_is_there() {
  in_box_ = 0;
  std::size_t bytes = box_.size() - kSealTagBytes;
  // Straight to the tensor, unless the box goes to several.
  const std::span<std::byte> room = router_.bulk_room(connection_, bytes);
  const bool is_direct = room.size() == bytes;
  if (!is_direct) plain_.resize(bytes);
  const std::span<std::byte> plain = is_direct ? room : std::span(plain_).first(bytes);
  if (!opener_->open(++boxes_, {}, box_, plain).ok()) {
    router_.dropped("a sealed payload that does not open");
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
