// One lane of one session: messages into frames at the sender, frames into messages at the receiver.
//
//   OutLane out(Lane::data, chunking);  out.add(message);
//   while (Ref<OutFrame> f = out.next(received)) carrier.send(c, f);      // what is new, or has to be repeated
//   out.acknowledge(n);                                                   // frames up to n are the peer's now
//
//   InLane in;  Status s = in.accept(data, inline_bytes, bulk, [&](Message m) { ... });
//
// A lane's messages are one stream of bytes, cut into frames: pieces of up to 16 KiB are gathered inline, up to 64 KiB a
// frame; a larger head or tensor goes as bulk, in chunks of up to 1 MiB that refer to its memory.
//
// Invariants
// 1. A frame is kept until it is acknowledged; it refers to its message, whose tensors live as long.
// 2. Bytes in frames that are not acknowledged never exceed the window, but for one frame on an empty lane: this, and
//    not what `add` was given, is what the network holds of the sender's memory.
// 3. Every byte is copied at most once at the receiver, and at the sender only if it is gathered inline.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include <troupe/cluster/carrier.hpp>
#include <troupe/cluster/transport.hpp>
#include <troupe/cluster/wire.hpp>

namespace troupe {

class OutLane {
 public:
  explicit OutLane(Lane lane) : lane_(lane) {}

  void add(Message message);
  /// The next frame that may be sent on the current connection; null if there is none, or the window is used up.
  Ref<OutFrame> next(const wire::Received& received, std::uint64_t window);
  /// Frames before `received` have arrived; false if so many were never sent.
  bool acknowledge(std::uint64_t received);
  /// On a new connection: everything that is not acknowledged goes again.
  void repeat() { to_repeat_ = 0; }

  bool is_idle() const { return queue_.empty() && kept_.empty(); }
  bool is_all_sent() const { return queue_.empty() && to_repeat_ == kept_.size(); }
  std::uint64_t unsent_bytes() const { return unsent_bytes_; }
  std::uint64_t kept_bytes() const { return kept_bytes_; }
  std::uint64_t copied_bytes() const { return copied_bytes_; }

 private:
  /// A message that is being cut up, or refered to by frames.
  struct Cut final : Counted {
    Message message;
  };
  struct Piece {
    const void* data;
    std::size_t bytes;
  };
  Piece piece(const Message& message) const;
  Ref<OutFrame> cut(const wire::Received& received);
  bool gather(const Message& message, OutFrame& frame);

  const Lane lane_;
  std::deque<Ref<Cut>> queue_;  // the first may be sent in part
  std::size_t part_ = 0;        // of the first: 0 the head, then the tensors
  std::size_t offset_ = 0;      // into that part
  bool begun_ = false;          // its type is in a frame already
  std::vector<Piece> pieces_;   // gathered for the frame that is being cut
  std::size_t gathered_ = 0;    // their bytes
  std::deque<Ref<OutFrame>> kept_;  // sent, not acknowledged
  std::size_t to_repeat_ = 0;       // of kept_, those from here on have to be sent on this connection
  std::uint64_t first_kept_ = 0;    // the sequence of kept_.front()
  std::uint64_t kept_bytes_ = 0, unsent_bytes_ = 0, copied_bytes_ = 0;
};

class InLane {
 public:
  /// Puts a frame's bytes into the messages they belong to and calls `deliver(Message)` for each that is complete.
  /// data_loss if bytes and messages do not match; resource_exhausted if there is no memory.
  template <class Deliver>
  Status accept(const wire::Data& data, std::span<const std::byte> inline_bytes, std::span<const std::byte> bulk, Deliver deliver) {
    Cursor cursor{inline_bytes, bulk};
    std::size_t begun = 0;
    for (;;) {
      if (is_open_) {
        if (!fill(cursor)) break;
        if (!is_valid()) return Status(Code::data_loss, "a bool that is neither false nor true");
        deliver(close());
      }
      if (begun == data.messages.size()) break;
      if (Status s = open(data.messages[begun++]); !s.ok()) return s;
    }
    if (begun < data.messages.size()) return Status(Code::data_loss, "a message begins before the one before it has ended");
    if (!cursor.first.empty() || !cursor.second.empty()) return Status(Code::data_loss, "bytes that belong to no message");
    return Status();
  }
  std::uint64_t next() const { return next_; }
  void advance() { ++next_; }
  std::uint64_t copied_bytes() const { return copied_bytes_; }

 private:
  struct Cursor {
    std::span<const std::byte> first, second;
  };
  Status open(const wire::MessageType& type);
  /// Takes what there is; true if the message is complete.
  bool fill(Cursor& cursor);
  bool is_valid() const;
  Message close();

  std::uint64_t next_ = 0;
  bool is_open_ = false;
  Message message_;
  std::uint64_t head_bytes_ = 0;  // the head grows as its bytes arrive
  std::size_t part_ = 0, offset_ = 0;
  std::uint64_t copied_bytes_ = 0;
};

}  // namespace troupe
