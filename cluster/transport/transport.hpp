// Transport: how nodes reach each other. One interface, three implementations: ZeroMQ, in-process,
// and a seeded simulation that delays, reorders between lanes, drops connections and kills.
//
//   transport->start(listener);
//   transport->connect("tcp://10.0.0.7:7117");            // ends in connected() or refused()
//   transport->send(peer, Lane::data, {head, {tensor}});  // never blocks, never copies the tensor's bytes
//
// What it promises (test/cluster/transport/transport_test.cpp holds every implementation to it):
// 1. Between connected() and lost(), the messages of one lane to one peer arrive once each and in
//    order, whatever reconnects happen below.
// 2. Lanes do not wait for each other, so that a heartbeat is not behind 256 MB.
// 3. Each connected() is followed by exactly one lost(), unless stop() comes first. After it
//    nothing more of that peer arrives: a peer that comes back is a new peer with a new number,
//    connected after the earlier one was lost.
// 4. What is sent before disconnect() or stop() still arrives, unless the network or the peer
//    fails; what a dead peer did not get is dropped.
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

/// What is sent: a small head, which the transport does not look into, and tensors on the host,
/// whose bytes it does not copy and which nobody may write any more. The receiver gets tensors of
/// the same dtype, shape and bits; within a process they may be the sender's.
struct Message {
  std::vector<std::byte> head;
  std::vector<Tensor> tensors;
};

}  // namespace detail

/// What a peer said of itself when it connected, and what a transport is told of its own node.
struct PeerInfo {
  std::string name;               // of the node; unique in a cluster
  std::uint64_t incarnation = 0;  // another one each time a node of that name starts
  std::string address;            // where it listens; empty: nowhere
  std::string engine;             // its version of Troupe
};

namespace detail {

class TransportListener {
 public:
  virtual void connected(Peer peer, const PeerInfo& info) = 0;
  /// `connect(address)` has come to nothing: nobody there, another version, not authorised.
  virtual void refused(const std::string& address, const Status& why) = 0;
  virtual void received(Peer peer, Lane lane, Message message) = 0;
  /// What the peer has sent by `send_direct`. It stays until the call returns.
  virtual void received_direct(Peer, std::span<const std::byte> /*record*/) {}
  /// The peer is gone: it left, it died, or it stayed away for longer than the transport keeps its
  /// messages.
  virtual void lost(Peer peer, const Status& why) = 0;
  /// The way to the peer has broken. It may come back, with nothing lost; or `lost` follows.
  virtual void broken(Peer) {}
  /// What is due by the transport's clock: called once it is started, and then when the time has
  /// come that it answered. A transport without a clock does not call it: where nothing is lost,
  /// nobody need be watched.
  virtual std::chrono::nanoseconds tick(std::chrono::nanoseconds /*now*/) {
    return std::chrono::nanoseconds::max();
  }

 protected:
  ~TransportListener() = default;
};

}  // namespace detail

/// Totals since the start; relaxed reads of single-writer counters.
struct TransportCounters {
  std::uint64_t messages_out = 0, messages_in = 0;
  std::uint64_t bytes_out = 0, bytes_in = 0;  // of heads and tensors
  std::uint64_t copied_bytes = 0;             // copied in user space, on either way
  std::uint64_t unsent_bytes = 0;             // now: taken by `send`, not yet given to the network
  // now: given to the network, not known to have arrived
  std::uint64_t unacknowledged_bytes = 0;
  // of those, payload that went beside the connection, by a bulk channel
  std::uint64_t bulk_bytes_out = 0, bulk_bytes_in = 0;
  std::uint64_t reconnects = 0;
  std::uint64_t dropped = 0;  // malformed, oversized, replayed, not authenticated
  // connections that ended in their handshake, before anything was said
  std::uint64_t turned_away = 0;
  // of those that had come here, in the middle of a session: who it was died, or the way to it, or
  // it claimed more than is taken
  std::uint64_t broken_off = 0;
};

/// Of one peer that is connected: totals since then, and what has not arrived yet.
struct PeerCounters {
  detail::Peer peer = 0;
  // of heads and tensors; those of a message that is still coming, too
  std::uint64_t bytes_out = 0, bytes_in = 0;
  std::uint64_t unsent_bytes = 0;  // now: taken by `send`, not yet given to the network
  // now: given to the network, not known to have arrived
  std::uint64_t unacknowledged_bytes = 0;
  // when anything came of it last, by the transport's clock: what is there says something each
  // second
  std::chrono::nanoseconds heard{};
};

class Transport {
 public:
  virtual ~Transport() = default;

  /// Listens and calls `listener` from now on; it outlives the transport. Throws unavailable if the
  /// address is taken.
  virtual void start(detail::TransportListener& listener) = 0;
  /// Sends what is unsent, tells the peers, and calls the listener no more. Done by the destructor
  /// too.
  virtual void stop() = 0;

  /// Where peers reach this transport, with the port that was chosen; empty: it does not listen.
  virtual std::string address() const = 0;
  /// Asks for a connection. One that exists already is kept, and nothing is heard; connecting to
  /// oneself is refused.
  virtual void connect(const std::string& address) = 0;
  /// Takes the message; a peer that is lost is no error: `lost` says so. Throws invalid_argument
  /// for a tensor that is not on the host, or is none.
  virtual void send(detail::Peer peer, detail::Lane lane, detail::Message message) = 0;
  /// A few bytes, once and in order with the messages of the data lane, by memory that the peer
  /// looks at: without a message, its allocations and its acknowledgement. False: it shall be sent
  /// as one, for there is no such memory, no room, or it is too long, or messages are on their way
  /// before it, and it `may_wait` for none. May be false always.
  virtual bool send_direct(detail::Peer, std::span<const std::byte> /*record*/,
                           bool /*may_wait*/ = true) {
    return false;
  }
  /// Within a listener's call: what was sent to this peer goes now, not when the call has ended. A
  /// transport may ignore it, and does for others.
  virtual void flush(detail::Peer) {}
  /// A tensor with elements not yet written, to be sent to this peer: in memory that it reads where
  /// it lies, if they share any and there is room, else as any other. It goes there uncopied if it
  /// is sent whole and nobody else holds it then.
  virtual Tensor empty_for(detail::Peer, DType dtype, const Shape& shape) {
    return Tensor::empty(dtype, shape);
  }
  /// Ends a connection: both listeners hear `lost` with this reason.
  virtual void disconnect(detail::Peer peer, const Status& why) = 0;

  /// What its clock says, since some fixed point: real, or a simulation's; always 0 without one.
  /// Any thread.
  virtual std::chrono::nanoseconds now() const = 0;

  virtual TransportCounters counters() const = 0;
  /// Of those that are connected. Empty where nothing waits: between handles of one process.
  virtual std::vector<PeerCounters> peers() const { return {}; }
};

// What implementations share.

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
