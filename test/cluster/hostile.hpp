// A router that is told frames nobody should send, before and after the handshake; what the mutation test and the
// fuzzer share. Nothing may crash, and nothing may be allocated for what a frame merely announces beyond the limits.
#pragma once

#include <troupe/cluster/router.hpp>

#include <cstdlib>

namespace troupe::test {

class Hostile final : private Carrier, private TransportListener {
 public:
  Hostile() : router_({.name = "victim", .incarnation = 1, .address = "test://victim", .engine = ""}, options(), *this, *this) {}

  /// The frame comes from a stranger, then from a peer whose session is open.
  void tell(std::span<const std::byte> header, std::span<const std::byte> bulk) {
    router_.frame(1, header, bulk);
    greet();
    router_.frame(kPeer, header, bulk);
    time_ += std::chrono::milliseconds(10);
    router_.tick();
  }
  std::uint64_t dropped() const { return router_.counters().dropped; }
  std::uint64_t received() const { return router_.counters().messages_in; }

 private:
  static constexpr Connection kPeer = 2;

  static RouterOptions options() {
    RouterOptions o;
    o.limits.message_bytes = 1 << 20;
    return o;
  }
  void greet() {
    if (router_.knows(kPeer)) return;
    wire::Hello hello;
    hello.info = {.name = "peer", .incarnation = ++incarnation_, .address = "", .engine = std::string(engine_version())};
    hello.session = incarnation_;
    hello.window = 1 << 20;
    router_.frame(kPeer, wire::encode(hello), {});
    router_.frame(kPeer, wire::encode(wire::Ready{}), {});
  }

  Connection dial(const std::string&) override { return next_++; }
  bool send(Connection, const Ref<OutFrame>&) override { return true; }
  void close(Connection) override {}
  Time now() const override { return time_; }
  void connected(Peer, const PeerInfo&) override {}
  void refused(const std::string&, const Status&) override {}
  void received(Peer, Lane, Message m) override {
    if (bytes_of(m) > options().limits.message_bytes) std::abort();
  }
  void lost(Peer, const Status&) override {}

  Time time_ = std::chrono::seconds(1);
  Connection next_ = 100;
  std::uint64_t incarnation_ = 0;
  Router router_;
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
  if (!wire::decode(again, limits, second).ok() || wire::encode(second.frame) != again) std::abort();
  return true;
}

}  // namespace troupe::test
