// The bulk channels of a transport over TCP: which kind two nodes use, and the channel itself.
//
//   kind            when                                             what
//   tcp             clear text is allowed: loopback, no keys         bulk_tcp.hpp
//   sealed_tcp      the connection is authenticated                  the same, every byte in a box of seal.hpp
//
// Who dials asks for the kinds it would use, who listens chooses one of them; nothing else is accepted as the answer, so
// an authenticated connection is never talked into clear text. For the keys either side adds 32 random bytes, which travel in
// the handshake; the connection that carries it hides them.
//
// Threads: the router's.
#pragma once

#include <troupe/cluster/bulk_tcp.hpp>

namespace troupe {

enum class BulkKind : std::uint8_t { tcp = 1, sealed_tcp = 2 };

class BulkChannels {
 public:
  BulkChannels(Router& router, const Carrier& clock, BulkTcpOptions options) : tcp_(router, clock, std::move(options)) {}
  void listen(const std::string& address, bool is_port_chosen) { tcp_.listen(address, is_port_chosen); }

  wire::Bulk ask(Connection connection, bool is_authenticated);
  wire::Bulk answer(Connection connection, const wire::Bulk& ask, bool is_authenticated);
  void open(Connection connection, const std::string& dialled, const wire::Bulk& answer);
  bool send(Connection connection, const Ref<OutFrame>& frame) { return tcp_.send(connection, frame); }
  void close(Connection connection);
  void stop() { tcp_.stop(); }
  bool work() { return tcp_.work(); }
  int descriptor() const { return tcp_.descriptor(); }
  std::uint64_t copied_bytes() const { return tcp_.copied_bytes(); }

 private:
  BulkTcp tcp_;
  std::map<Connection, wire::Bulk> asked_;  // by us
};

}  // namespace troupe
