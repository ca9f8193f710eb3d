// A router that receives invalid wire frames, before and after the handshake; shared by the
// mutation test and the fuzzer. The router must not crash, and must not allocate beyond the limits
// for sizes that a wire frame merely announces.
#pragma once

#include <troupe/cluster/transport/channel/bulk_record.hpp>
#include <troupe/cluster/transport/router.hpp>

#include <cstdlib>
#include <string>
#include <utility>

namespace troupe::test {

class Hostile final : private FrameLink, private TransportListener {
 public:
  /// With a bulk channel next to the peer's connection, or without; with a slab that the peer lends
  /// from.
  explicit Hostile(bool has_bulk = false, std::optional<SealKeys> keys = {},
                   Ref<BorrowedSlab> slab = {})
      : has_bulk_(has_bulk), keys_(std::move(keys)), slab_(std::move(slab)),
        router_({.name = "victim", .incarnation = 1, .address = "test://victim", .engine = ""},
                options(), *this, *this) {}

  /// The wire frame comes from a stranger, then from a peer whose session is open.
  void tell(std::span<const std::byte> header, std::span<const std::byte> bulk) {
    router_.frame(1, header, bulk);
    greet();
    router_.frame(kPeer, header, bulk);
    time_ += std::chrono::milliseconds(10);
    router_.tick();
  }
  /// Passes one wire frame of the peer alone.
  void tell_open(std::span<const std::byte> header, std::span<const std::byte> bulk) {
    greet();
    router_.frame(kPeer, header, bulk);
  }
  /// The victim dials, and the wire frame is what it hears by that connection, an answer being one
  /// to what it has asked: first, then behind what a peer answers as it should, and by the
  /// connection that it dials when the first has broken.
  void tell_dialled(std::span<const std::byte> header, std::span<const std::byte> bulk) {
    router_.connect("test://" + std::to_string(next_));
    answer(header, bulk);
    wire::Hello hello = greeting("dialled");
    hello.is_answer = true;
    answer(wire::encode(hello), {});
    answer(header, bulk);
    break_dialled();
    answer(header, bulk);
    // A dial has failed then, or the session's node answers and ends it: nothing of it is left.
    answer(wire::encode(hello), {});
    answer(wire::encode(wire::Bye{Status(Code::unavailable, "it has left"), {}}), {});
    break_dialled();
  }
  /// It dials, and hears this alone.
  void dial_and_tell(const wire::Frame& frame) {
    router_.connect("test://" + std::to_string(next_));
    answer(wire::encode(frame), {});
  }
  /// Breaks the dialled connection and advances to the time of the next dial.
  void break_dialled() {
    router_.broken(dialled_, Status(Code::unavailable, "it broke"));
    time_ += std::chrono::milliseconds(100);
    router_.tick();
  }
  /// By the connection that was dialled last.
  void answer(std::span<const std::byte> header, std::span<const std::byte> bulk) {
    wire::Decoded said;
    const bool is_read = wire::decode(header, options().limits, said).ok();
    auto* hello = is_read ? std::get_if<wire::Hello>(&said.frame) : nullptr;
    if (!hello || !hello->is_answer || hello->version != wire::kVersion)
      return router_.frame(dialled_, header, bulk);
    hello->session = asked_;
    router_.frame(dialled_, wire::encode(*hello), bulk);
    if (std::exchange(is_offered_, false)) router_.bulk_opened(dialled_);
  }
  /// The peer starts anew.
  void forget() {
    reader_.reset();
    greet();
  }
  const Message& last() const { return last_; }
  /// The peer's connection, then its bulk channel, which a new session opens anew. False: the
  /// channel was given up.
  bool tell_bulk(std::span<const std::byte> stream, bool starts_anew = true) {
    if (starts_anew || !router_.knows(kPeer)) greet();
    if (!reader_) return false;
    while (!stream.empty()) {
      if (reader_->is_waiting()) return reader_->retry() || (reader_.reset(), false);
      // As from a ring, which a slab needs, or as from a socket.
      iovec rooms[2];
      const std::span<std::byte> room = slab_ ? reader_->room() : std::span<std::byte>();
      if (slab_) rooms[0] = {room.data(), room.size()};
      const std::size_t pieces = slab_ ? !room.empty() : reader_->rooms(rooms);
      if (pieces == 0) return reader_.reset(), false;
      std::size_t n = 0;
      for (const iovec& piece : std::span(rooms).first(pieces)) {
        const std::size_t part = std::min(piece.iov_len, stream.size());
        std::memcpy(piece.iov_base, stream.data(), part);
        stream = stream.subspan(part);
        n += part;
      }
      if (!reader_->got(n)) return reader_.reset(), false;
    }
    return true;
  }
  std::uint64_t dials() const { return next_ - kFirstDialled; }
  std::size_t met() const { return met_; }
  std::size_t refusals() const { return refusals_; }
  std::size_t losses() const { return losses_; }
  /// The bulk channel that the last answer offered.
  const wire::Bulk& offered() const { return offered_; }
  std::uint64_t dropped() const { return router_.counters().dropped; }
  std::uint64_t received() const { return router_.counters().messages_in; }
  std::uint64_t copied_bytes() const { return router_.counters().copied_bytes; }

 private:
  static constexpr Connection kPeer = 2, kFirstDialled = 100;

  static RouterOptions options() {
    RouterOptions o;
    o.limits.message_bytes = 1 << 20;
    return o;
  }
  wire::Hello greeting(const std::string& name) {
    wire::Hello hello;
    hello.info = {.name = name,
                  .incarnation = ++incarnation_,
                  .address = "",
                  .engine = std::string(engine_version())};
    hello.session = incarnation_;
    hello.window = 1 << 20;
    return hello;
  }
  void greet() {
    if (router_.knows(kPeer) && (!has_bulk_ || reader_)) return;
    if (router_.knows(kPeer))
      router_.broken(kPeer, Status(Code::unavailable, "its bulk channel broke"));
    router_.frame(kPeer, wire::encode(greeting("peer")), {});
    router_.frame(kPeer, wire::encode(wire::Ready{}), {});
    if (!has_bulk_) return;
    router_.bulk_opened(kPeer);
    reader_.emplace(router_, kPeer, keys_);
    if (slab_) reader_->use(slab_);
  }
  wire::Bulk answer_bulk(Connection, const wire::Bulk&) override {
    wire::Bulk answer;
    answer.kinds = has_bulk_;
    return answer;
  }
  // It was dialled, and there is to be a channel.
  void open_bulk(Connection connection, const wire::Bulk& terms) override {
    if (connection != dialled_ || terms.kinds == 0) std::abort();
    offered_ = terms;
    is_offered_ = true;
  }
  bool send_bulk(Connection, const Ref<OutFrame>&) override { return true; }

  Connection dial(const std::string&) override { return dialled_ = next_++; }
  bool send(Connection, const Ref<OutFrame>& frame) override {
    wire::Decoded said;
    if (wire::decode(frame->header, {}, said).ok())
      if (const auto* hello = std::get_if<wire::Hello>(&said.frame); hello && !hello->is_answer)
        asked_ = hello->session;
    return true;
  }
  void close(Connection) override {}
  Time now() const override { return time_; }
  void connected(Peer, const PeerInfo&) override { ++met_; }
  void refused(const std::string&, const Status&) override { ++refusals_; }
  void received(Peer, Lane, Message m) override {
    if (bytes_of(m) > options().limits.message_bytes) std::abort();
    last_ = std::move(m);
  }
  void lost(Peer, const Status&) override { ++losses_; }

  Time time_ = std::chrono::seconds(1);
  Connection next_ = kFirstDialled, dialled_ = 0;
  std::uint64_t asked_ = 0;  // the session of the last dial
  bool is_offered_ = false;
  wire::Bulk offered_;
  std::size_t met_ = 0, refusals_ = 0, losses_ = 0;
  std::uint64_t incarnation_ = 0;
  Message last_;
  const bool has_bulk_;
  const std::optional<SealKeys> keys_;
  const Ref<BorrowedSlab> slab_;
  Router router_;
  std::optional<BulkReader> reader_;
};

/// Decodes; if that succeeds, what is written again must read as the same. False if it was refused.
inline bool decode_and_check(std::span<const std::byte> bytes) {
  wire::Limits limits;
  limits.message_bytes = 1 << 20;
  wire::Decoded first, second;
  if (!wire::decode(bytes, limits, first).ok()) return false;
  if (first.header_bytes > bytes.size()) std::abort();
  const auto* hello = std::get_if<wire::Hello>(&first.frame);
  if (hello && hello->version != wire::kVersion) return true;
  const std::vector<std::byte> again = wire::encode(first.frame);
  if (!wire::decode(again, limits, second).ok() || wire::encode(second.frame) != again)
    std::abort();
  return true;
}

}  // namespace troupe::test
