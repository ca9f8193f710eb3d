#include <troupe/cluster/lane.hpp>

#include <algorithm>
#include <cstring>

namespace troupe {

namespace {

constexpr std::size_t kGathered = 16 << 10;  // a piece up to this size is copied: cheaper than a part of its own
constexpr std::size_t kInline = 32 << 10;    // of a frame; freeing blocks of 64 KiB makes malloc tidy up all others
// Unchunked, 256 MiB arrive at a seventh of the speed: each frame lands in fresh memory.
constexpr std::size_t kChunk = 1 << 20;
constexpr std::size_t kMessages = 1024;  // that begin in one frame
constexpr std::size_t kHeadStep = 256 << 10;  // a head grows so much ahead of its bytes

wire::MessageType type_of(const Message& message) {
  wire::MessageType type;
  type.head_bytes = message.head.size();
  type.tensors.reserve(message.tensors.size());
  for (const Tensor& t : message.tensors) type.tensors.push_back({t.dtype(), t.shape()});
  return type;
}

}  // namespace

// ---- out

void OutLane::add(Message message) {
  unsent_bytes_ += bytes_of(message);
  Ref<Cut> cut(new Cut);
  cut->message = std::move(message);
  queue_.push_back(std::move(cut));
}

OutLane::Piece OutLane::piece(const Message& message) const {
  if (part_ == 0) return {message.head.data() + offset_, message.head.size() - offset_};
  const Tensor& tensor = message.tensors[part_ - 1];
  return {static_cast<const std::byte*>(tensor.raw()) + offset_, tensor.bytes() - offset_};
}

Ref<OutFrame> OutLane::next(const wire::Received& received, std::uint64_t window) {
  if (to_repeat_ < kept_.size()) return kept_[to_repeat_++];
  if (queue_.empty() || kept_cost_ >= 2 * window) return {};
  if (kept_bytes_ != 0 && kept_bytes_ + std::min<std::uint64_t>(unsent_bytes_, kChunk + kInline) > window) return {};
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
  wire::Data data{.lane = lane_, .sequence = first_kept_ + kept_.size(), .received = received, .messages = {}};
  std::vector<Ref<Cut>> finished;  // whose pieces are gathered
  pieces_.clear();
  gathered_ = 0;
  while (!queue_.empty() && data.messages.size() < kMessages) {
    const Ref<Cut>& first = queue_.front();
    if (!begun_) data.messages.push_back(type_of(first->message));
    begun_ = true;
    const bool is_complete = gather(first->message, *frame);
    if (frame->bulk_bytes != 0) {
      first->retain();
      frame->owner = Ref<Counted>(first.get());
    }
    if (is_complete) {
      finished.push_back(std::move(queue_.front()));
      queue_.pop_front();
      part_ = offset_ = 0;
      begun_ = false;
    }
    if (frame->bulk_bytes != 0 || !is_complete || gathered_ + kGathered > kInline) break;
  }
  frame->payload_bytes = gathered_ + frame->bulk_bytes;
  frame->header.reserve(64 + 32 * data.messages.size() + gathered_);
  wire::encode_data(data, frame->header);
  for (const Piece& p : pieces_) {
    const auto* bytes = static_cast<const std::byte*>(p.data);
    frame->header.insert(frame->header.end(), bytes, bytes + p.bytes);
  }
  copied_bytes_ += gathered_;
  return frame;
}

/// Puts pieces of the message into the frame until the frame is full, or ends with bulk; true if that was the last piece.
bool OutLane::gather(const Message& message, OutFrame& frame) {
  for (; part_ <= message.tensors.size(); ++part_, offset_ = 0) {
    const Piece p = piece(message);
    if (p.bytes > kGathered) {
      frame.bulk = p.data;
      frame.bulk_bytes = std::min(p.bytes, kChunk);
      offset_ += frame.bulk_bytes;
      if (frame.bulk_bytes < p.bytes) return false;
      ++part_;
      offset_ = 0;
      // Empty pieces that follow belong to this frame too: nothing may be left that has no bytes to come with.
      while (part_ <= message.tensors.size() && piece(message).bytes == 0) ++part_;
      return part_ > message.tensors.size();
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

Status InLane::open(const wire::MessageType& type) {
  try {
    message_.tensors.reserve(type.tensors.size());
    for (const wire::TensorType& t : type.tensors) message_.tensors.push_back(Tensor::empty(t.dtype, t.shape));
  } catch (const Error& e) {
    return Status(e);
  } catch (const std::bad_alloc&) {
    return Status(Code::resource_exhausted, "no memory for a message that arrives");
  }
  is_open_ = true;
  head_bytes_ = type.head_bytes;
  part_ = offset_ = 0;
  return Status();
}

bool InLane::is_complete() {
  while (part_ <= message_.tensors.size() && offset_ == part_bytes()) {
    ++part_;
    offset_ = 0;
  }
  return part_ > message_.tensors.size();
}

std::span<std::byte> InLane::room(std::size_t most) {
  if (!is_open_) return {};
  const std::size_t bytes = std::min(part_bytes() - offset_, most);
  if (part_ != 0) return {static_cast<std::byte*>(message_.tensors[part_ - 1].raw_mutable()) + offset_, bytes};
  const std::size_t grown = std::min(bytes, kHeadStep);
  message_.head.resize(offset_ + grown);
  return {message_.head.data() + offset_, grown};
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

}  // namespace troupe
