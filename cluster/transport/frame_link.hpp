// Carries wire frames between nodes for the router: over ZeroMQ's sockets or over the simulated
// network.
//
// A connection carries wire frames in order, or breaks. A connection that breaks may have lost any
// number of its last wire frames. A connection that broke or was closed is never used again.
//
// Beside it there may be a bulk channel. Once it is open, it carries Data frames and
// acknowledgements. It keeps its own order, but no order with the wire frames of the connection.
// The two hosts agree on a channel in the handshake: the links write and read these fields
// (wire::Bulk), and the router only passes them on. A bulk channel that was never opened does no
// harm. Once it is open the two are one connection, which breaks when either does.
//
// Threads: a link and its router live on one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <troupe/cluster/transport/transport.hpp>
#include <troupe/cluster/transport/wire.hpp>
#include <troupe/devices/base/error.hpp>
#include <troupe/devices/tensor/value.hpp>

namespace troupe::detail {

/// By a number of its link that is never used again; 0 is none.
using Connection = std::uint64_t;

using Time = std::chrono::nanoseconds;  // since some fixed point

/// A wire frame on its way out: the header, and bulk that lies in memory which `owner` keeps alive.
/// Counted, because both the session, which may have to repeat it, and the link hold it.
class OutFrame final : public Counted {
 public:
  std::vector<std::byte> header;
  const void* bulk = nullptr;
  std::size_t bulk_bytes = 0;
  Ref<Counted> owner;
  std::uint64_t payload_bytes = 0;  // payload of messages, inline and bulk
  // the tensor of which bulk is a piece, or null; `owner` keeps it alive
  const Tensor* whole = nullptr;
  // true: overtakes wire frames that are not urgent and that the channel could not take yet
  bool is_urgent = false;

  std::uint64_t cost() const { return wire::cost_of(header.size(), bulk_bytes); }
};

/// A direct record that a peer sends directly, beside wire frames. Direct records arrive in order
/// and none is lost (direct_ring.hpp).
struct DirectRecord {
  std::uint64_t after;               // messages of data priority that precede it in this session
  std::span<const std::byte> bytes;  // valid until the direct record is taken
};
class DirectSource {
 public:
  virtual ~DirectSource() = default;
  /// Permits the peer to send, and sends it the number of its messages that have arrived.
  virtual void open(std::uint64_t messages) = 0;
  virtual void have_come(std::uint64_t messages) = 0;
  /// Withdraws the permission. Direct records that the peer has sent by then are there.
  virtual void close() = 0;
  /// Makes the direct records that are there now visible to `first`, and later ones up to one
  /// ring's worth. Before the first `look` or `close`, `first` need not return any.
  virtual void look() = 0;
  /// Returns the first direct record that was not taken.
  virtual std::optional<DirectRecord> first() = 0;
  virtual void take() = 0;
};

/// Calls the router about later events, never from within one of these calls.
class FrameLink {
 public:
  virtual Connection dial(const std::string& address) = 0;
  /// False if the connection has broken.
  virtual bool send(Connection connection, const Ref<OutFrame>& frame) = 0;
  /// Closes the connection. Wire frames that were sent before still go out, if they can.
  virtual void close(Connection connection) = 0;

  /// Returns the bulk channel's part of a Hello. Empty: there is to be no channel.
  virtual wire::Bulk ask_for_bulk(Connection) { return {}; }
  /// Returns the bulk channel's part of the answer to that Hello.
  virtual wire::Bulk answer_bulk(Connection, const wire::Bulk&) { return {}; }
  /// The answer has come: opens the channel, or lets it be. Router::bulk_opened is called at both
  /// ends when it may be used.
  virtual void open_bulk(Connection, const wire::Bulk&) {}
  /// As `send`, by the bulk channel, which is open.
  virtual bool send_bulk(Connection, const Ref<OutFrame>&) { return false; }
  /// A session begins: called before the listener's `connected`.
  virtual void session_opened(Peer) {}
  /// Nothing goes to that peer any more. May be called twice.
  virtual void session_over(Peer) {}
  /// The node at the other end, which has a session, is reached at this address.
  virtual void met(Connection, const std::string& /*address*/) {}

  virtual Time now() const = 0;
  /// The public key that the other end has proved to hold; empty: it has proved nothing.
  virtual std::string key_of(Connection) const { return {}; }
  bool is_authenticated(Connection connection) const { return !key_of(connection).empty(); }
  /// Returns the address at which this node reaches a node that announces `told` as its own
  /// address.
  virtual std::string reachable(Connection, const std::string& told) const { return told; }
  /// Checks that the other end may use this name, given the identity that it has proved.
  virtual Status admits(Connection, const std::string& /*name*/) const { return Status(); }

 protected:
  ~FrameLink() = default;
};

}  // namespace troupe::detail
