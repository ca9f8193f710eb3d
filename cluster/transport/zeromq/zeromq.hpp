// Transports over TCP, on ZeroMQ.
//
//   auto t = make_zeromq_transport(
//       {.name = "worker1", .incarnation = 7, .address = "tcp://127.0.0.1:0"});
//   t->start(listener);  t->address();   // tcp://127.0.0.1:41233
//
// One thread owns all sockets and calls the listener (transport_loop.hpp). Handshakes, heartbeats
// and ends go over ZeroMQ's sockets. Messages go over the bulk channel if there is one
// (zeromq_link.hpp). ZeroMQ's own thread moves bytes to and from the kernel. A connection that
// breaks is replaced by another, and the session repeats the wire frames that were not acknowledged
// (session.hpp).
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include <troupe/cluster/transport/net/keys.hpp>
#include <troupe/cluster/transport/net/seal.hpp>
#include <troupe/cluster/transport/router.hpp>

namespace troupe {

struct ZeroMqOptions {
  RouterOptions router = {};
  std::chrono::nanoseconds spin = std::chrono::microseconds(50);
  /// Congestion control of every connection, if the kernel has it. The default of some systems,
  /// bbr, halves the speed of loopback.
  std::string congestion = "cubic";
  /// With keys (connection_authorizer.hpp), every connection is encrypted and both its ends are
  /// authorized. Without, addresses other than loopback are refused, in either direction.
  std::optional<Keys> keys = {};
  /// Called with a line at a time, on the transport's thread: for each refused peer, and, once a
  /// minute at most, for dropped wire frames with the reason.
  std::function<void(const std::string& line)> log = {};
  /// Messages go by a second connection. The kernel reads large payload from it straight into
  /// tensors (bulk_channels.hpp).
  bool bulk = true;
  /// Between processes of one host they go by shared memory instead.
  bool shared_memory = true;
  /// Most bytes of tensors in memory shared with another process, for each peer and direction;
  /// further tensors are copied.
  std::size_t slab_bytes = std::size_t(256) << 20;
  /// Port of a listening node for these connections; 0: the port above its own, if that was given
  /// and is free, else any.
  int bulk_port = 0;
  /// The port that peers get instead, if another port leads there; 0: bulk_port.
  int bulk_port_outside = 0;
  /// Seals what goes over them without keys too, for tests. Both ends must say the same, or have no
  /// bulk channel.
  bool seal = false;
  /// Boxes that a key may seal. The connection is then made anew, with new keys.
  std::uint64_t seal_boxes = detail::kMostSealBoxes;
};

/// `self.address` is `tcp://HOST:PORT`, with port 0 for any, or empty.
std::unique_ptr<Transport> make_zeromq_transport(PeerInfo self, ZeroMqOptions options = {});

}  // namespace troupe
