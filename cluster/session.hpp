// One peer, for as long as it is connected: its two lanes, and what outlives a connection that breaks.
//
// The protocol, of the one that dials (D) and the one that is dialled (A); every frame is in WIRE.md:
//
//     D                                    A
//     Hello{session, received} ─────────►      A knows D, and on a resumed session what D has got
//     ◄───────── Hello{answer, received}       D knows A, likewise
//     Ready ────────────────────────────►      both have decided on this connection
//     ◄──────── Data, Ack, … ───────────►
//     (connection breaks: D dials again, with resumes = true; both repeat what was not acknowledged)
//     Bye ──────────────────────────────►      behind the last Data
//     ◄───────────────────────────── Gone
//
// Frames of a lane are numbered from 0 for the whole session. Both say in the handshake what they have received, and take
// no more from the connection before; so each gets exactly what is missing, in order. A number that comes again was
// replayed, and one that is left out ends the session.
#pragma once

#include <algorithm>

#include <troupe/cluster/lane.hpp>

namespace troupe {

class Session {
 public:
  /// `window`: bytes a lane that may be on their way unacknowledged, in either direction.
  explicit Session(std::uint64_t window) : window_(window), granted_(window) {}
  /// What the peer accepts may be less.
  void limit_window(std::uint64_t bytes) { window_ = std::min(window_, bytes); }

  void add(Lane lane, Message message) { out_[index(lane)].add(std::move(message)); }
  /// What to send next: of the control lane, if it has anything.
  Ref<OutFrame> next() {
    for (OutLane& lane : out_)
      if (Ref<OutFrame> frame = lane.next(received(), window_)) {
        unreported_bytes_ = unreported_frames_ = 0;  // it carries `received`
        return frame;
      }
    return {};
  }
  /// A new connection, on which the peer says what it has received; false if it cannot have.
  bool attach(const wire::Received& peer_received) {
    if (!acknowledge(peer_received)) return false;
    for (OutLane& lane : out_) lane.repeat();
    return true;
  }
  bool acknowledge(const wire::Received& peer_received) {
    bool known = true;
    for (std::size_t i = 0; i < wire::kLanes; ++i) known = out_[i].acknowledge(peer_received[i]) && known;
    return known;
  }
  template <class Deliver>
  Status accept(const wire::Data& data, std::span<const std::byte> inline_bytes, std::span<const std::byte> bulk, Deliver deliver) {
    InLane& lane = in_[index(data.lane)];
    if (data.sequence != lane.next()) return Status(Code::data_loss, "frames are missing");
    lane.advance();
    unreported_bytes_ += inline_bytes.size() + bulk.size();
    ++unreported_frames_;
    return lane.accept(data, inline_bytes, bulk, [&](Message m) { deliver(data.lane, std::move(m)); });
  }

  /// Has this frame arrived before? Somebody plays it again: a peer repeats only what it was told is missing.
  bool has_taken(const wire::Data& data) const { return data.sequence < in_[index(data.lane)].next(); }

  wire::Received received() const { return {in_[0].next(), in_[1].next()}; }
  /// Has anything arrived that the peer was not told of?
  bool has_news() const { return unreported_frames_ != 0; }
  /// So much that it should be told at once: an eighth of a window, so that the sender never stands still for it.
  bool has_much_news() const { return unreported_bytes_ >= granted_ / 8 || unreported_frames_ >= 64; }
  void told() { unreported_bytes_ = unreported_frames_ = 0; }

  bool is_all_sent() const { return out_[0].is_all_sent() && out_[1].is_all_sent(); }
  std::uint64_t unsent_bytes() const { return out_[0].unsent_bytes() + out_[1].unsent_bytes(); }
  std::uint64_t kept_bytes() const { return out_[0].kept_bytes() + out_[1].kept_bytes(); }
  std::uint64_t copied_bytes() const {
    return out_[0].copied_bytes() + out_[1].copied_bytes() + in_[0].copied_bytes() + in_[1].copied_bytes();
  }

 private:
  static std::size_t index(Lane lane) { return static_cast<std::size_t>(lane); }

  std::uint64_t window_;  // for what we send
  const std::uint64_t granted_;  // for what the peer sends
  OutLane out_[wire::kLanes] = {OutLane(Lane::control), OutLane(Lane::data)};
  InLane in_[wire::kLanes];
  std::uint64_t unreported_bytes_ = 0, unreported_frames_ = 0;
};

}  // namespace troupe
