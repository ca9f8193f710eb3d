// The two priorities of one session, which outlives a connection that breaks: numbers,
// acknowledgements, and wire frames that arrive out of order. The handshake is in
// router_handshake.cpp.
//
//   session.add(Lane::data, message);
//   while (Ref<OutFrame> frame = session.next()) …     // sends it
//   session.accept(data, inline_bytes, bulk, cost, may_be_early, deliver);  // has arrived
//   session.take_ack(received);  session.attach(received);  // on this connection, on a new one
//
// Wire frames of a priority are numbered from 0 for the whole session. Both nodes announce in the
// handshake what they have received, and take no more from the connection before. So each gets
// exactly the missing wire frames, in order. A number that comes again was replayed.
//
// With a bulk channel (frame_link.hpp) a priority's wire frames arrive by two ways, each in order.
// A wire frame on the bulk channel waits there for its turn, and its bulk goes straight to the
// tensor. Each way keeps its order, so neither can wait for the other for ever. Invariants: 1. wire
// frames of a priority are delivered in the order of their numbers, each once; 2. those that are
// out of order on the connection are buffered, up to the bytes that a sender may have in flight; 3.
// a missing number ends the session: without a bulk channel at once, else beyond those bytes.
#pragma once

#include <algorithm>
#include <map>

#include <troupe/cluster/transport/lane.hpp>

namespace troupe::detail {

class Session {
 public:
  /// `window`: bytes a priority that may be on their way unacknowledged, in either direction.
  explicit Session(std::uint64_t window) : window_(window), granted_(window) {}
  /// Lowers the session quota to the bytes that the peer accepts.
  void limit_window(std::uint64_t bytes) { window_ = std::min(window_, bytes); }

  void add(Lane lane, Message message) { out_[index(lane)].add(std::move(message)); }
  /// Returns the next wire frame to send: of control priority, if it has one.
  Ref<OutFrame> next() {
    for (OutLane& lane : out_)
      if (Ref<OutFrame> frame = lane.next(received(), window_)) {
        unreported_bytes_ = unreported_frames_ = 0;  // it carries `received`
        return frame;
      }
    return {};
  }
  /// Attaches a new connection, on which the peer reports the wire frames that it has received;
  /// false if it cannot have received them.
  bool attach(const wire::Received& peer_received) {
    if (!take_ack(peer_received)) return false;
    for (OutLane& lane : out_) lane.repeat();
    for (auto& frames : early_) frames.clear();  // they come again
    early_cost_ = {};
    return true;
  }
  /// Frees the wire frames that the peer has received; false if so many were never sent.
  bool take_ack(const wire::Received& peer_received) {
    bool known = true;
    for (std::size_t i = 0; i < wire::kLanes; ++i)
      known = out_[i].acknowledge(peer_received[i]) && known;
    return known;
  }
  /// A whole wire frame from the connection; `may_be_early`: others may be on their way by the bulk
  /// channel.
  template <class Deliver>
  Status accept(wire::Data& data, std::span<const std::byte> inline_bytes,
                std::span<const std::byte> bulk, std::uint64_t cost, bool may_be_early,
                Deliver deliver) {
    if (data.sequence != in(data).next())
      return may_be_early ? put_by(data, inline_bytes, bulk, cost)
                          : Status(Code::data_loss, "frames are missing");
    if (Status s = take(data, inline_bytes, bulk, deliver); !s.ok()) return s;
    return take_what_was_early(data.lane, deliver);
  }

  // A wire frame of the bulk channel, whose turn it is.
  bool is_turn_of(const wire::Data& data) const {
    return data.sequence == in_[index(data.lane)].next();
  }
  /// `placed`: bytes of its bulk that are there already, since they came before the last connection
  /// broke.
  template <class Deliver>
  Status begin_bulk(wire::Data& data, std::span<const std::byte> inline_bytes,
                    std::uint64_t& placed, Deliver deliver) {
    Status s = in(data).begin(data, inline_bytes, to(data.lane, deliver));
    placed = in(data).placed();
    return s;
  }
  std::span<std::byte> bulk_room(Lane lane, std::size_t most) {
    return in_[index(lane)].room(most);
  }
  Status no_room(Lane lane) const { return in_[index(lane)].no_room(); }
  bool borrow(Lane lane, const LentBytes& lent) { return in_[index(lane)].borrow(lent); }
  template <class Deliver>
  Status bulk_filled(Lane lane, std::size_t bytes, bool is_copy, Deliver deliver) {
    if (is_copy) in_[index(lane)].note_copied(bytes);
    return in_[index(lane)].filled(bytes, to(lane, deliver));
  }
  template <class Deliver>
  Status end_bulk(Lane lane, Deliver deliver) {
    unreported_bytes_ += in_[index(lane)].placed();
    ++unreported_frames_;
    if (Status s = in_[index(lane)].end(); !s.ok()) return s;
    return take_what_was_early(lane, deliver);
  }

  /// Returns true if this wire frame has arrived before. It is then a replay: a peer repeats only
  /// the wire frames that are reported missing.
  bool has_taken(const wire::Data& data) const {
    return data.sequence < in_[index(data.lane)].next() ||
           early_[index(data.lane)].contains(data.sequence);
  }

  wire::Received received() const { return {in_[0].next(), in_[1].next()}; }
  /// True if wire frames have arrived that are not acknowledged yet.
  bool has_unacked() const { return unreported_frames_ != 0; }
  bool has_more_to_deliver() const { return in_[0].has_more() || in_[1].has_more(); }
  bool has_one_unacked() const { return unreported_frames_ == 1; }
  /// True if they are so many that they should be acknowledged at once: an eighth of a session
  /// quota, so that the sender never stands still for it.
  bool has_many_unacked() const {
    return unreported_bytes_ >= granted_ / 8 || unreported_frames_ >= 64;
  }
  void note_acked() { unreported_bytes_ = unreported_frames_ = 0; }

  /// Wire frames that were cut of each priority.
  wire::Received sent() const { return {out_[0].frames(), out_[1].frames()}; }
  /// Have so many arrived?
  bool has_received(const wire::Received& sent) const {
    return in_[0].next() >= sent[0] && in_[1].next() >= sent[1];
  }
  bool is_all_sent() const { return out_[0].is_all_sent() && out_[1].is_all_sent(); }
  std::size_t waiting() const { return out_[0].waiting() + out_[1].waiting(); }
  std::uint64_t unsent_bytes() const { return out_[0].unsent_bytes() + out_[1].unsent_bytes(); }
  std::uint64_t kept_bytes() const { return out_[0].kept_bytes() + out_[1].kept_bytes(); }
  std::uint64_t copied_bytes() const {
    return out_[0].copied_bytes() + out_[1].copied_bytes() + in_[0].copied_bytes() +
           in_[1].copied_bytes() + copied_early_;
  }

 private:
  struct Early {
    wire::Data data;
    std::vector<std::byte> bytes;  // inline and bulk
    std::uint64_t cost;
  };

  static std::size_t index(Lane lane) { return static_cast<std::size_t>(lane); }
  InLane& in(const wire::Data& data) { return in_[index(data.lane)]; }
  template <class Deliver>
  static auto to(Lane lane, Deliver& deliver) {
    return [lane, &deliver](Message m) { deliver(lane, std::move(m)); };
  }

  template <class Deliver>
  Status take(wire::Data& data, std::span<const std::byte> inline_bytes,
              std::span<const std::byte> bulk, Deliver& deliver) {
    InLane& lane = in(data);
    unreported_bytes_ += inline_bytes.size() + bulk.size();
    ++unreported_frames_;
    if (Status s = lane.begin(data, inline_bytes, to(data.lane, deliver)); !s.ok()) return s;
    if (lane.placed() > bulk.size())
      return Status(Code::data_loss, "a frame is shorter than it was");
    if (Status s = lane.copy(bulk.subspan(lane.placed()), to(data.lane, deliver)); !s.ok())
      return s;
    return lane.end();
  }
  Status put_by(wire::Data& data, std::span<const std::byte> inline_bytes,
                std::span<const std::byte> bulk, std::uint64_t cost) {
    // A sender has no more than this on its way when it adds a wire frame (lane.hpp, invariant 2).
    if (early_cost_[index(data.lane)] >= 2 * granted_)
      return Status(Code::data_loss, "frames are missing");
    Early early{std::move(data), {inline_bytes.begin(), inline_bytes.end()}, cost};
    early.bytes.insert(early.bytes.end(), bulk.begin(), bulk.end());
    const std::size_t lane = index(early.data.lane);
    early_cost_[lane] += cost;
    copied_early_ += early.bytes.size();
    const std::uint64_t sequence = early.data.sequence;
    early_[lane].emplace(sequence, std::move(early));
    return Status();
  }
  template <class Deliver>
  Status take_what_was_early(Lane lane, Deliver& deliver) {
    auto& early = early_[index(lane)];
    while (!early.empty() && early.begin()->first == in_[index(lane)].next()) {
      auto frame = early.extract(early.begin());
      early_cost_[index(lane)] -= frame.mapped().cost;
      if (Status s = take(frame.mapped().data, frame.mapped().bytes, {}, deliver); !s.ok())
        return s;
    }
    return Status();
  }

  std::uint64_t window_;         // for what we send
  const std::uint64_t granted_;  // for what the peer sends
  OutLane out_[wire::kLanes] = {OutLane(Lane::control), OutLane(Lane::data)};
  InLane in_[wire::kLanes];
  std::map<std::uint64_t, Early> early_[wire::kLanes];  // by sequence
  std::array<std::uint64_t, wire::kLanes> early_cost_ = {};
  std::uint64_t copied_early_ = 0;
  std::uint64_t unreported_bytes_ = 0, unreported_frames_ = 0;
};

}  // namespace troupe::detail
