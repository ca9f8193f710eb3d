// Transport: how nodes reach each other. One interface, three implementations: ZeroMQ, in-process,
// and a seeded simulation that delays, reorders between priorities, drops connections and kills.
//
//   transport->start(listener);
//   // ends in connected() or refused(), or in neither if the two are connected already
//   transport->connect("tcp://10.0.0.7:7117");
//   // never blocks, never copies the tensor's bytes
//   transport->send(peer, Lane::data, {head, {tensor}});
//
// Promises, to which test/cluster/transport/transport_test.cpp holds every implementation:
// 1. Between connected() and lost(), the messages of one priority to one peer arrive once each and
//    in order, whatever reconnects happen below.
// 2. Priorities have quotas of their own. A heartbeat waits behind at most one quota of data, never
//    behind 256 MB.
// 3. Each connected() is followed by exactly one lost(), unless stop() comes first. After lost()
//    nothing more of that peer arrives. A peer that comes back is a new peer with a new number,
//    connected after the earlier one was lost.
// 4. Messages that were sent before disconnect() or stop() still arrive, unless the network or the
//    peer fails. Messages that a dead peer did not get are dropped.
//
// Threads: all but start and stop from any thread. A listener is called from one thread at a time;
// it must not block, and may call everything but stop.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <troupe/devices/base/error.hpp>
#include <troupe/devices/tensor/tensor.hpp>

namespace troupe {

namespace detail {

/// A connected peer, by a number of this transport that is never used again.
using Peer = std::uint32_t;

enum class Lane : std::uint8_t {
  control,  // small and urgent: membership, grants, the outcome of runs
  data,     // tokens
};

/// A message: a small head, which the transport does not read, and tensors on the host. `send`
/// copies no tensor; on the way some are copied (TRANSPORT.md, Note [Copies]). No holder may write
/// them any more. The receiver gets tensors of equal dtype, shape and bits; within a process they
/// may be the sender's.
struct Message {
  std::vector<std::byte> head;
  std::vector<Tensor> tensors;
};

}  // namespace detail

/// Facts that a peer announces when it connects, and that a transport gets for its own node.
struct PeerInfo {
  std::string name;               // the node's name, unique in a cluster
  std::uint64_t incarnation = 0;  // another one each time a node of that name starts
  std::string address;            // the address at which it listens; empty: it does not listen
  std::string engine;             // its version of Troupe
};

namespace detail {

class TransportListener {
 public:
  virtual void connected(Peer peer, const PeerInfo& info) = 0;
  /// `connect(address)` failed: no node is there, or it has another version or no authorisation.
  virtual void refused(const std::string& address, const Status& why) = 0;
  virtual void received(Peer peer, Lane lane, Message message) = 0;
  /// The peer sent this direct record by `send_direct`. The bytes are valid until the call returns.
  virtual void received_direct(Peer, std::span<const std::byte> /*record*/) {}
  /// The peer is gone: it left, it died, or it stayed away for longer than the transport keeps its
  /// messages.
  virtual void lost(Peer peer, const Status& why) = 0;
  /// The way to the peer has broken. It may come back, with nothing lost; or `lost` follows.
  virtual void broken(Peer) {}
  /// Does the work that is due by the transport's clock. It is called after the start, and then at
  /// each time that it returned. A transport without a clock does not call it: it loses no
  /// messages, so no peer needs to be watched.
  virtual std::chrono::nanoseconds tick(std::chrono::nanoseconds /*now*/) {
    return std::chrono::nanoseconds::max();
  }

 protected:
  ~TransportListener() = default;
};

}  // namespace detail

/// Totals since the start, and two amounts of now. A call waits for the transport's current turn.
struct TransportCounters {
  std::uint64_t messages_out = 0, messages_in = 0;
  std::uint64_t bytes_out = 0, bytes_in = 0;  // bytes of heads and tensors
  std::uint64_t copied_bytes = 0;             // copied in user space, on either way
  std::uint64_t unsent_bytes = 0;             // now: taken by `send`, not yet given to the network
  // now: given to the network, not known to have arrived
  std::uint64_t unacknowledged_bytes = 0;
  // payload of bulk parts by a bulk channel; without inline bytes and direct records
  std::uint64_t bulk_bytes_out = 0, bulk_bytes_in = 0;
  std::uint64_t reconnects = 0;  // breaks of connections whose handshake was done
  std::uint64_t dropped = 0;     // malformed, oversized, replayed, not authenticated
  // connections that ended in their handshake, before any wire frame
  std::uint64_t turned_away = 0;
  // accepted connections that broke during a session: the peer died, the network failed, or the
  // peer announced an oversized message
  std::uint64_t broken_off = 0;
};

/// Counters of one connected peer: totals since then, and bytes that have not arrived yet.
struct PeerCounters {
  detail::Peer peer = 0;
  // heads and tensors, including messages that are still arriving
  std::uint64_t bytes_out = 0, bytes_in = 0;
  std::uint64_t unsent_bytes = 0;  // now: taken by `send`, not yet given to the network
  // now: given to the network, not known to have arrived
  std::uint64_t unacknowledged_bytes = 0;
  // when a wire frame of the connection itself arrived last, by the transport's clock. The bulk
  // channel and direct records do not count. A live peer sends one each second.
  std::chrono::nanoseconds heard{};
};

class Transport {
 public:
  virtual ~Transport() = default;

  /// Listens and calls `listener` from now on; it outlives the transport. Throws unavailable if the
  /// address is taken.
  virtual void start(detail::TransportListener& listener) = 0;
  /// Sends buffered messages, notifies the peers, and calls the listener no more. Done by the
  /// destructor too.
  virtual void stop() = 0;

  /// Returns the address for peers, with the port that was chosen. Empty: the transport does not
  /// listen.
  virtual std::string address() const = 0;
  /// Asks for a connection. An existing one is kept, without a call of the listener; a connection
  /// to oneself is refused.
  virtual void connect(const std::string& address) = 0;
  /// Takes the message. A lost peer is no error: `lost` reports it. Throws invalid_argument for a
  /// tensor that is not on the host, or is none.
  virtual void send(detail::Peer peer, detail::Lane lane, detail::Message message) = 0;
  /// Sends a few bytes through memory that the peer polls. They arrive once, in order with the
  /// messages of data priority. Returns false if nothing was sent; the caller then sends a message.
  /// Reasons: no such memory, no room, or too long; or `may_wait` is false and earlier messages
  /// have not arrived yet. An implementation may always return false.
  virtual bool send_direct(detail::Peer, std::span<const std::byte> /*record*/,
                           bool /*may_wait*/ = true) {
    return false;
  }
  /// Within a listener's call: sends the messages to this peer now, not when the call has ended. A
  /// transport may ignore it, and does for others.
  virtual void flush(detail::Peer) {}
  /// Returns a tensor with elements not yet written, to be sent to this peer. It lies in memory
  /// that the peer reads directly, if they share any and there is room, else in ordinary memory.
  /// The tensor goes there uncopied if it is sent whole and has no other holder then.
  virtual Tensor empty_for(detail::Peer, DType dtype, const Shape& shape) {
    return Tensor::empty(dtype, shape);
  }
  /// Ends a connection: `lost` is called on both listeners with this reason.
  virtual void disconnect(detail::Peer peer, const Status& why) = 0;

  /// Returns the clock's time since some fixed point: real, or a simulation's; always 0 without
  /// one. Any thread.
  virtual std::chrono::nanoseconds now() const = 0;

  virtual TransportCounters counters() const = 0;
  /// Returns the counters of connected peers. The in-process transport returns none.
  virtual std::vector<PeerCounters> peers() const { return {}; }
};

// Functions that the implementations share.

/// The version of Troupe in this process.
std::string_view engine_version();
namespace detail {

/// May these two be connected? Not with oneself, without a name, or with another version of Troupe.
Status check_peer(const PeerInfo& self, const PeerInfo& peer);
/// Throws invalid_argument for what cannot be sent.
void check_sendable(const Message& message);
/// Bytes of head and tensors.
std::uint64_t bytes_of(const Message& message);

}  // namespace detail

}  // namespace troupe
