// The bulk channels of a transport over TCP: the kind that two nodes use, and the channel itself.
//
//   kind            when                                             what
//   tcp             clear text is allowed: loopback, no keys         a socket (bulk_sockets.hpp)
//   gcm_tcp         the connection is authenticated                  a socket, sealed (seal.hpp)
//   ocb_tcp         that, and libcrypto is faster with this cipher   a socket, sealed
//   shared_memory   both are processes of one host and one user      rings (shared_rings.hpp)
//
// On a sealed socket, header and bulk of each bulk record are in boxes of seal.hpp. The greeting
// with the ticket, and the first 16 bytes of each record (its sizes), are clear; the latter are
// authenticated.
// Small wire frames go through the rings too.
//
// One host: the same boot of the kernel and the same name spaces. The two nodes compare these, and
// opening the unix socket proves them. Its memory is for this user's processes only, so it needs no
// seal.
//
// The dialling node sends the kinds that it would use, and the listening node chooses one of them.
// For the keys either side adds 32 random bytes, which travel in the handshake, hidden by its
// connection.
//
// Threads: the transport's. Invariants: 1. only a kind that the dialling node has sent is opened;
// 2. therefore an authenticated connection never falls back to clear text over TCP.
#pragma once

#include <troupe/cluster/transport/channel/bulk_sockets.hpp>

namespace troupe {

enum class BulkKind : std::uint8_t { tcp = 1, gcm_tcp = 2, shared_memory = 4, ocb_tcp = 8 };

class BulkChannels {
 public:
  BulkChannels(Router& router, const FrameLink& clock, DirectSenders& senders,
               const BulkSocketOptions& options);
  void listen(const std::string& address, bool is_port_chosen) {
    sockets_.listen(address, is_port_chosen);
  }

  wire::Bulk ask(Connection connection, bool is_authenticated);
  wire::Bulk answer(Connection connection, const wire::Bulk& ask, bool is_authenticated);
  void open(Connection connection, const std::string& dialled, const wire::Bulk& answer);
  bool send(Connection connection, const Ref<OutFrame>& frame) {
    return sockets_.send(connection, frame);
  }
  void close(Connection connection);
  Ref<LendingSlab> slab(Connection connection) const { return sockets_.slab(connection); }
  void stop() { sockets_.stop(); }
  bool work(bool looks_at_sockets) { return sockets_.work(looks_at_sockets); }
  /// Returns the number of open channels.
  std::size_t channels() const { return sockets_.channels(); }
  bool has_sockets() const { return sockets_.channels() > sockets_.rings(); }
  std::size_t rings() const { return sockets_.rings(); }
  bool shares_memory() const { return rings() != 0; }
  std::size_t take_direct(std::size_t most) { return sockets_.take_direct(most); }
  bool has_news() const { return sockets_.has_news(); }
  bool fall_asleep() { return sockets_.fall_asleep(); }
  void wake_up() { sockets_.wake_up(); }
  int descriptor() const { return sockets_.descriptor(); }
  std::uint64_t copied_bytes() const { return sockets_.copied_bytes(); }

 private:
  Router& router_;
  BulkSockets sockets_;
  const std::string host_;  // empty: no shared memory
  const std::uint64_t seal_boxes_;
  std::map<Connection, wire::Bulk> asked_;  // by us
};

}  // namespace troupe
