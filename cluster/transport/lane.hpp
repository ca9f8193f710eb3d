// One priority of one session: messages into wire frames at the sender, wire frames into messages
// at the receiver.
//
//   OutLane out(Lane::data);  out.add(message);
//   // new or repeated wire frames
//   while (Ref<OutFrame> f = out.next(received, window)) link.send(c, f);
//   out.acknowledge(n);  // the peer has wire frames up to n
//
//   InLane in;  in.begin(data, inline_bytes, deliver);  in.copy(bulk, deliver);  in.end();
//
// A priority's messages are one stream of bytes, cut into wire frames: pieces of up to 16 KiB are
// gathered inline, up to 32 KiB a wire frame; a larger head or tensor goes as bulk, all of it, in
// chunks of 1 MiB that refer to its memory. The last chunk has up to 16 KiB more.
//
// Invariants
// 1. A wire frame is kept until it is acknowledged. It refers to its message, whose tensors live as
//    long.
// 2. Payload in wire frames that are not acknowledged never exceeds the session quota, but for one
//    wire frame on an empty priority. This is the sender's memory that the network holds; messages
//    that `add` has queued do not count. The cost of these wire frames (wire::cost_of), headers
//    included, exceeds twice the session quota by at most a wire frame.
// 3. Every byte is copied at most once at the receiver, and at the sender only if it is gathered
//    inline.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include <troupe/cluster/transport/frame_link.hpp>
#include <troupe/cluster/transport/transport.hpp>
#include <troupe/cluster/transport/wire.hpp>

namespace troupe::detail {

class OutLane {
 public:
  explicit OutLane(Lane lane) : lane_(lane) {}

  void add(Message message);
  /// The next wire frame that may be sent on the current connection; null if there is none, or the
  /// session quota is used up.
  Ref<OutFrame> next(const wire::Received& received, std::uint64_t window);
  /// Wire frames before `received` have arrived; false if so many were never sent.
  bool acknowledge(std::uint64_t received);
  /// On a new connection: everything that is not acknowledged goes again.
  void repeat() { to_repeat_ = 0; }

  /// Wire frames that were cut since the session began.
  std::uint64_t frames() const { return first_kept_ + kept_.size(); }
  bool is_all_sent() const { return queue_.empty() && to_repeat_ == kept_.size(); }
  std::uint64_t unsent_bytes() const { return unsent_bytes_; }
  std::size_t waiting() const { return queue_.size(); }  // messages that are not sent in full
  std::uint64_t kept_bytes() const { return kept_bytes_; }
  std::uint64_t copied_bytes() const { return copied_bytes_; }

 private:
  /// A message that wire frames refer to.
  struct Held final : Counted {
    explicit Held(Message m) : message(std::move(m)) {}
    const Message message;
  };
  struct Piece {
    const void* data;
    std::size_t bytes;
  };
  const Message& first() const { return held_ ? held_->message : queue_.front(); }
  Piece piece(const Message& message) const;
  Ref<OutFrame> cut(const wire::Received& received);
  bool gather(OutFrame& frame);

  const Lane lane_;
  std::deque<Message> queue_;  // the first may be sent in part
  // the message that was first in queue_, if a wire frame refers to it
  Ref<Held> held_;
  std::size_t part_ = 0;           // part of the first message: 0 the head, then the tensors
  std::size_t offset_ = 0;         // into that part
  bool begun_ = false;             // its type is in a wire frame already
  std::vector<Piece> pieces_;      // gathered for the wire frame that is being cut
  std::size_t gathered_ = 0;       // their bytes
  std::vector<Message> finished_;  // whose pieces these are
  // messages that begin in the next wire frame; entries of earlier wire frames follow them and are
  // overwritten
  std::vector<wire::MessageType> types_;
  std::deque<Ref<OutFrame>> kept_;  // sent, not acknowledged
  // index in kept_ of the first wire frame that has to be sent on this connection
  std::size_t to_repeat_ = 0;
  std::uint64_t first_kept_ = 0;  // the sequence of kept_.front()
  std::uint64_t kept_bytes_ = 0, kept_cost_ = 0, unsent_bytes_ = 0, copied_bytes_ = 0;
};

/// Bytes that lie in memory which can be a tensor's own.
struct LentBytes {
  const void* data;             // the whole tensor
  std::uint64_t bytes, offset;  // size of the whole tensor; position of these bytes in it
  const std::function<Ref<Buffer>()>& borrow;
};

/// A wire frame comes whole, or in pieces that are written straight to where they belong:
///   begin(data, inline bytes);
///   while there is more: span = room(n), fill it, filled(bytes);
///   end()
/// A wire frame that breaks off midway comes again on another connection, from its beginning.
/// `begin` then skips the part that arrived, and `placed` is the bulk that is there already.
/// `deliver(Message)` is called for each complete message.
class InLane {
 public:
  /// The sequence of the wire frame that is awaited, or has begun.
  std::uint64_t next() const { return next_; }

  /// Takes the messages out of `data`. data_loss if bytes and messages do not match;
  /// resource_exhausted if there is no memory.
  template <class Deliver>
  Status begin(wire::Data& data, std::span<const std::byte> inline_bytes, Deliver deliver) {
    if (is_begun_) return Status();
    is_begun_ = true;
    types_.swap(data.messages);  // which the next wire frame is read into
    next_type_ = 0;
    if (Status s = settle(deliver); !s.ok()) return s;
    Status s = copy(inline_bytes, deliver);
    placed_ = 0;
    return s;
  }
  /// While a message is delivered: others begin in the same wire frame.
  bool has_more() const { return next_type_ < types_.size(); }
  std::uint64_t placed() const { return placed_; }
  /// Returns the memory for the next bytes, up to `most` of them. Empty: `no_room` says why.
  std::span<std::byte> room(std::size_t most);
  Status no_room() const {
    return no_room_.ok() ? Status(Code::data_loss, "bytes that belong to no message") : no_room_;
  }
  /// Makes lent memory the memory of the tensor whose bytes are next, if it is as large and begins
  /// here. Returns false if the bytes have to be copied.
  bool borrow(const LentBytes& lent);
  template <class Deliver>
  Status filled(std::size_t bytes, Deliver deliver) {
    offset_ += bytes;
    placed_ += bytes;
    return settle(deliver);
  }
  Status end() {
    if (next_type_ < types_.size())
      return Status(Code::data_loss, "a message begins before the one before it has ended");
    is_begun_ = false;
    ++next_;
    forget_many();
    return Status();
  }
  /// Bytes that lie elsewhere.
  template <class Deliver>
  Status copy(std::span<const std::byte> bytes, Deliver deliver) {
    while (!bytes.empty()) {
      const std::span<std::byte> to = room(bytes.size());
      if (to.empty()) return no_room();
      std::memcpy(to.data(), bytes.data(), to.size());
      copied_bytes_ += to.size();
      if (Status s = filled(to.size(), deliver); !s.ok()) return s;
      bytes = bytes.subspan(to.size());
    }
    return Status();
  }
  /// Counts bytes that were copied into `room` in user space.
  void note_copied(std::uint64_t bytes) { copied_bytes_ += bytes; }
  std::uint64_t copied_bytes() const { return copied_bytes_; }

 private:
  /// Closes the message that has all its bytes, and opens those that are next, up to one that
  /// awaits bytes.
  template <class Deliver>
  Status settle(Deliver deliver) {
    for (;;) {
      if (is_open_) {
        if (!is_complete()) return Status();
        if (!is_valid()) return Status(Code::data_loss, "a bool that is neither false nor true");
        deliver(close());
      }
      if (next_type_ == types_.size()) return Status();
      open(types_[next_type_++]);
    }
  }
  void open(wire::MessageType& type);
  void enter();
  /// Goes on to the part that awaits bytes; true if there is none.
  bool is_complete();
  bool is_valid() const;
  Message close();
  void forget_many();

  std::uint64_t next_ = 0;
  bool is_begun_ = false;
  std::vector<wire::MessageType> types_;  // messages of the wire frame that has begun
  std::size_t next_type_ = 0;
  std::uint64_t placed_ = 0;  // bytes of its bulk that are in place
  bool is_open_ = false;
  wire::MessageType type_;  // describes message_
  Message message_;
  Status no_room_;
  std::uint64_t head_bytes_ = 0;  // the head grows as its bytes arrive
  std::size_t part_ = 0, offset_ = 0, part_bytes_ = 0;
  std::uint64_t copied_bytes_ = 0;
};

}  // namespace troupe::detail
