#include <troupe/cluster/transport/lane.hpp>

#include <algorithm>
#include <cstring>

namespace troupe::detail {

namespace {

// a piece up to this size is copied: cheaper than a part of its own
constexpr std::size_t kGathered = 16 << 10;
// bytes inline in a wire frame; freeing blocks of 64 KiB makes malloc tidy up all others
constexpr std::size_t kInline = 32 << 10;
// Bytes of a bulk chunk. Unchunked, 256 MiB arrive at a seventh of the speed: each wire frame lands
// in fresh memory.
constexpr std::size_t kChunk = 1 << 20;
constexpr std::size_t kMessages = 1024;       // messages that begin in one wire frame
constexpr std::size_t kHeadStep = 256 << 10;  // a head grows so much ahead of its bytes
// from one wire frame to the next, so that small messages need no memory for their types
constexpr std::size_t kTypesKept = 4096;

void describe(const Message& message, wire::MessageType& type) {
  type.head_bytes = message.head.size();
  type.tensors.resize(message.tensors.size());
  for (std::size_t i = 0; i < message.tensors.size(); ++i)
    type.tensors[i] = {message.tensors[i].dtype(), message.tensors[i].shape()};
}

}  // namespace

// ---- out

void OutLane::add(Message message) {
  unsent_bytes_ += bytes_of(message);
  queue_.push_back(std::move(message));
}

OutLane::Piece OutLane::piece(const Message& message) const {
  if (part_ == 0) return {message.head.data() + offset_, message.head.size() - offset_};
  const Tensor& tensor = message.tensors[part_ - 1];
  return {static_cast<const std::byte*>(tensor.raw()) + offset_, tensor.bytes() - offset_};
}

Ref<OutFrame> OutLane::next(const wire::Received& received, std::uint64_t window) {
  if (to_repeat_ < kept_.size()) return kept_[to_repeat_++];
  if (queue_.empty() || kept_cost_ >= 2 * window) return {};
  if (kept_bytes_ != 0 &&
      kept_bytes_ + std::min<std::uint64_t>(unsent_bytes_, kChunk + kGathered + kInline) > window)
    return {};
  Ref<OutFrame> frame = cut(received);
  kept_bytes_ += frame->payload_bytes;
  kept_cost_ += frame->cost();
  unsent_bytes_ -= frame->payload_bytes;
  kept_.push_back(frame);
  to_repeat_ = kept_.size();
  return frame;
}

Ref<OutFrame> OutLane::cut(const wire::Received& received) {
  Ref<OutFrame> frame(new OutFrame);
  wire::Data data{
      .lane = lane_, .sequence = first_kept_ + kept_.size(), .received = received, .messages = {}};
  data.messages.swap(types_);
  std::size_t types = 0;
  Ref<Held> tail;  // holds the message that ends in this wire frame; its bytes are gathered
  pieces_.clear();
  gathered_ = 0;
  while (!queue_.empty() && types < kMessages) {
    if (!begun_) {
      if (types == data.messages.size()) data.messages.emplace_back();
      describe(first(), data.messages[types++]);
    }
    begun_ = true;
    const bool is_complete = gather(*frame);
    if (frame->bulk_bytes != 0) {
      held_->retain();
      frame->owner = Ref<Counted>(held_.get());
    }
    if (is_complete) {
      // Pieces stay where they are when a message moves: heads and handles of tensors lie in
      // vectors.
      if (!held_) finished_.push_back(std::move(queue_.front()));
      if (held_ && frame->bulk_bytes == 0) tail = std::move(held_);
      held_ = Ref<Held>();
      queue_.pop_front();
      part_ = offset_ = 0;
      begun_ = false;
    }
    if (frame->bulk_bytes != 0 || !is_complete || gathered_ + kGathered > kInline) break;
  }
  frame->payload_bytes = gathered_ + frame->bulk_bytes;
  frame->is_urgent = lane_ == Lane::control;
  frame->header.reserve(64 + 32 * types + gathered_);
  wire::encode_data(data, types, frame->header);
  for (const Piece& p : pieces_) {
    const auto* bytes = static_cast<const std::byte*>(p.data);
    frame->header.insert(frame->header.end(), bytes, bytes + p.bytes);
  }
  copied_bytes_ += gathered_;
  finished_.clear();
  types_.swap(data.messages);
  return frame;
}

/// Puts pieces of the first message into the wire frame until the wire frame is full, or ends with
/// bulk; true if that was the last piece.
bool OutLane::gather(OutFrame& frame) {
  for (; part_ <= first().tensors.size(); ++part_, offset_ = 0) {
    const Piece p = piece(first());
    if (p.bytes > kGathered) {
      frame.bulk = p.data;
      // The last chunk takes up a rest that could be gathered: a loan of the tensor ends with its
      // last bulk (BulkWriter), and so no end of a tensor that has begun as bulk goes inline.
      frame.bulk_bytes = p.bytes <= kChunk + kGathered ? p.bytes : kChunk;
      if (!held_) held_ = Ref<Held>(new Held(std::move(queue_.front())));
      if (part_ != 0) frame.whole = &first().tensors[part_ - 1];
      offset_ += frame.bulk_bytes;
      if (frame.bulk_bytes < p.bytes) return false;
      ++part_;
      offset_ = 0;
      // Empty pieces that follow belong to this wire frame too: nothing may be left that has no
      // bytes to come with.
      while (part_ <= first().tensors.size() && piece(first()).bytes == 0) ++part_;
      return part_ > first().tensors.size();
    }
    if (gathered_ + p.bytes > kInline) return false;
    if (p.bytes != 0) pieces_.push_back(p);
    gathered_ += p.bytes;
  }
  return true;
}

bool OutLane::acknowledge(std::uint64_t received) {
  if (received > first_kept_ + kept_.size()) return false;
  for (; first_kept_ < received; ++first_kept_) {
    kept_bytes_ -= kept_.front()->payload_bytes;
    kept_cost_ -= kept_.front()->cost();
    kept_.pop_front();
    if (to_repeat_ != 0) --to_repeat_;
  }
  return true;
}

// ---- in

void InLane::open(wire::MessageType& type) {
  type_.tensors.swap(type.tensors);
  message_.tensors.resize(type_.tensors.size());
  is_open_ = true;
  head_bytes_ = type.head_bytes;
  part_ = offset_ = 0;
  enter();
}

/// Sets part_bytes_ for part_; `room` allocates the memory.
void InLane::enter() {
  if (part_ == 0 || part_ > type_.tensors.size()) {
    part_bytes_ = part_ == 0 ? head_bytes_ : 0;
  } else {
    const wire::TensorType& t = type_.tensors[part_ - 1];
    part_bytes_ = static_cast<std::size_t>(t.shape.elements()) * size_of(t.dtype);
  }
}

bool InLane::is_complete() {
  while (part_ <= message_.tensors.size() && offset_ == part_bytes_) {
    if (part_ != 0 && part_bytes_ == 0)
      message_.tensors[part_ - 1] =
          Tensor::empty(type_.tensors[part_ - 1].dtype, type_.tensors[part_ - 1].shape);
    ++part_;
    offset_ = 0;
    enter();
  }
  return part_ > message_.tensors.size();
}

std::span<std::byte> InLane::room(std::size_t most) {
  if (!is_open_) return {};
  const std::size_t bytes = std::min(part_bytes_ - offset_, most);
  try {
    if (part_ != 0) {
      Tensor& t = message_.tensors[part_ - 1];
      if (!t.has_value())
        t = Tensor::empty(type_.tensors[part_ - 1].dtype, type_.tensors[part_ - 1].shape);
      return {static_cast<std::byte*>(t.raw_mutable()) + offset_, bytes};
    }
    const std::size_t grown = std::min(bytes, kHeadStep);
    message_.head.resize(offset_ + grown);
    return {message_.head.data() + offset_, grown};
  } catch (const Error& e) { no_room_ = Status(e); } catch (const std::bad_alloc&) {
    no_room_ = Status(Code::resource_exhausted, "no memory for a message that arrives");
  }
  return {};
}

bool InLane::borrow(const LentBytes& lent) {
  if (!is_open_ || part_ == 0 || part_bytes_ != lent.bytes || offset_ != lent.offset) return false;
  Tensor& t = message_.tensors[part_ - 1];
  const wire::TensorType& type = type_.tensors[part_ - 1];
  if (t.has_value()) return t.raw() == lent.data;
  // Checked values must not change after the check, so they are copied.
  if (type.dtype == DType::boolean || type.shape.is_scalar() || offset_ != 0) return false;
  t = Tensor::on_buffer(lent.borrow(), 0, nullptr, type.dtype, type.shape);
  return true;
}

void InLane::forget_many() {
  std::size_t kept = types_.capacity();
  for (const wire::MessageType& type : types_) kept += type.tensors.capacity();
  if (kept > kTypesKept) types_ = {};
}

bool InLane::is_valid() const {
  for (const Tensor& t : message_.tensors) {
    if (t.dtype() != DType::boolean) continue;
    const auto* bytes = static_cast<const unsigned char*>(t.raw());
    if (std::any_of(bytes, bytes + t.bytes(), [](unsigned char b) { return b > 1; })) return false;
  }
  return true;
}

Message InLane::close() {
  is_open_ = false;
  Message whole = std::move(message_);
  message_ = {};
  return whole;
}

}  // namespace troupe::detail
