// What carries frames between nodes, as the router sees it: ZeroMQ's sockets, or the simulated
// network.
//
// A connection carries frames in order, or breaks: it may then have lost any number of the last
// ones. One that has broken, or was closed, is never used again.
//
// Next to it there may be a bulk channel, for frames with much payload, which carries them in order
// too, but in no order with those of the connection. The two hosts agree on one in the handshake:
// what they say about it is theirs (wire::Bulk), the router only passes it on. A bulk channel that
// was never opened harms nothing; once it is open the two are one connection, which breaks when
// either does.
//
// Threads: a carrier and its router live on one thread.
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

/// By a number of its carrier that is never used again; 0 is none.
using Connection = std::uint64_t;

using Time = std::chrono::nanoseconds;  // since some fixed point

/// A frame on its way out: the header, and bulk that lies in memory which `owner` keeps alive.
/// Counted, because both the session, which may have to repeat it, and the carrier hold it.
class OutFrame final : public Counted {
 public:
  std::vector<std::byte> header;
  const void* bulk = nullptr;
  std::size_t bulk_bytes = 0;
  Ref<Counted> owner;
  std::uint64_t payload_bytes = 0;  // of messages, inline and bulk
  const Tensor* whole = nullptr;    // that bulk is a piece of, if it is one; `owner` holds it
  // goes before those that are not, by a channel that could not take them yet
  bool is_urgent = false;

  std::uint64_t cost() const { return wire::cost_of(header.size(), bulk_bytes); }
};

/// What a peer sends directly, beside frames: records in order, none of which is lost
/// (direct_ring.hpp).
struct DirectRecord {
  std::uint64_t after;               // so many messages of the data lane in this session
  std::span<const std::byte> bytes;  // until it is taken
};
class DirectSource {
 public:
  virtual ~DirectSource() = default;
  /// The peer may send from now on, who is told so and how many messages of it have come.
  virtual void open(std::uint64_t messages) = 0;
  virtual void have_come(std::uint64_t messages) = 0;
  /// It may not any more; what it has sent by then is there.
  virtual void close() = 0;
  /// `first` has what is there now, and of what is sent meanwhile no more than fits in there at
  /// once; nothing before it is open.
  virtual void look() = 0;
  /// The first that was not taken.
  virtual std::optional<DirectRecord> first() = 0;
  virtual void take() = 0;
};

/// Calls the router about what happens later, never from within one of these.
class Carrier {
 public:
  virtual Connection dial(const std::string& address) = 0;
  /// False if the connection has broken.
  virtual bool send(Connection connection, const Ref<OutFrame>& frame) = 0;
  /// What was sent before still goes out, if it can.
  virtual void close(Connection connection) = 0;

  /// What a Hello says of the bulk channel; nothing: there shall be none.
  virtual wire::Bulk ask_for_bulk(Connection) { return {}; }
  /// What the answer says to that.
  virtual wire::Bulk answer_bulk(Connection, const wire::Bulk&) { return {}; }
  /// The answer has come: opens the channel, or lets it be. Both ends hear Router::bulk_opened when
  /// it may be used.
  virtual void open_bulk(Connection, const wire::Bulk&) {}
  /// As `send`, by the bulk channel, which is open.
  virtual bool send_bulk(Connection, const Ref<OutFrame>&) { return false; }
  /// A session begins, which the listener has not heard of yet; it has ended, and nothing goes to
  /// that peer any more.
  virtual void session_opened(Peer) {}
  virtual void session_over(Peer) {}
  /// The node at the other end, which has a session, is reached at this address.
  virtual void met(Connection, const std::string& /*address*/) {}

  virtual Time now() const = 0;
  /// The public key that the other end has proved to hold; empty: it has proved nothing.
  virtual std::string key_of(Connection) const { return {}; }
  bool is_authenticated(Connection connection) const { return !key_of(connection).empty(); }
  /// Where a node is reached that says it listens at `told`, as seen from here.
  virtual std::string reachable(Connection, const std::string& told) const { return told; }
  /// May the other end, being who it is, call itself so?
  virtual Status admits(Connection, const std::string& /*name*/) const { return Status(); }

 protected:
  ~Carrier() = default;
};

}  // namespace troupe::detail
