// A connection that was dialled: a DEALER without ZeroMQ's own reconnection. A name is looked up
// first (resolver.hpp), and each of its addresses tried until one accepts. With keys the dial goes
// through the keys of the list until the other end proves to hold one (connection_authorizer.hpp).
// Earlier wire frames are buffered.
//
//   OutboundConnection d(context, authorizer, lookups, options, number, address, now);
//   d.send(frame);
//   if (Status over = d.watch(now); !over.ok()) …  // now and then: news of the resolver and ZeroMQ
//
// Threads: the transport's. Invariants: 1. a connection that is over stays so; 2. buffered wire
// frames go first, in their order; 3. each address that a name stands for is checked for reach.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <troupe/cluster/transport/net/resolver.hpp>
#include <troupe/cluster/transport/zeromq/connection_authorizer.hpp>
#include <troupe/cluster/transport/zeromq/zeromq.hpp>
#include <troupe/cluster/transport/zeromq/zeromq_socket.hpp>

namespace troupe {

class OutboundConnection {
 public:
  using Time = std::chrono::nanoseconds;

  /// Throws invalid_argument for a malformed address, failed_precondition for one that may not be
  /// reached, an earlier error of the resolver, resource_exhausted, and zmq::error_t.
  OutboundConnection(zmq::context_t& context, ConnectionAuthorizer& authorizer, Lookups& lookups,
                     const ZeroMqOptions& options, Connection number, std::string address,
                     Time now);
  ~OutboundConnection();
  OutboundConnection(const OutboundConnection&) = delete;
  OutboundConnection& operator=(const OutboundConnection&) = delete;

  bool send(const Ref<OutFrame>& frame);
  /// Not ok: it is over.
  Status watch(Time now);
  /// Returns the time of the next `watch`, whatever arrives meanwhile.
  Time due() const;
  /// The key that the other end has proved; empty without keys, and before.
  const std::string& key() const { return key_; }
  /// How many it has had: where it differs, so do `socket`, `monitor` and `bell`.
  std::size_t sockets() const { return sockets_ + (lookup_ ? 0 : 1); }
  const std::string& address() const { return address_; }
  /// Returns the node's address for other nodes: a name may have addresses at which it is not.
  const std::string& address_of_node() const {
    return targets_.size() > 1 && !reached_.empty() ? reached_ : address_;
  }
  /// The address that it was connected with, in numbers: names are not looked up twice, nor for
  /// others than this; empty before.
  const std::string& reached() const { return reached_; }
  zmq::socket_t& socket() { return socket_; }
  void* monitor() { return monitor_->handle(); }
  /// Returns a descriptor that is readable when the name was looked up; -1: no look-up runs.
  int bell() const { return lookup_ ? lookup_->bell() : -1; }

 private:
  enum class State { nothing, connected, accepted };

  void prepare();
  void attempt();
  void share(Time now);
  bool try_next(Time now);
  void look(Time now);
  /// A little less than what the router waits for the first answer, or for one of a session that it
  /// dials again, which would not say whose it lacks.
  Time patience() const {
    return std::min(options_.router.answer, options_.router.silence) * 9 / 10;
  }
  Status take(const SocketEvent& event, Time now);

  zmq::context_t& context_;
  ConnectionAuthorizer& authorizer_;
  Lookups& lookups_;
  const ZeroMqOptions& options_;
  const std::string name_;  // name of its monitors
  const std::string address_;
  const Time began_;
  Time give_up_at_{};                        // the present one of several targets
  std::shared_ptr<Lookup> lookup_;           // until it is answered
  std::vector<std::string> keys_, targets_;  // to be tried; targets: without names
  std::size_t key_tried_ = 0, target_ = 0, sockets_ = 0;
  State state_ = State::nothing;
  std::string key_, reached_;
  std::vector<Ref<OutFrame>> early_;  // wire frames that wait for the handshake
  std::optional<SocketEvent> refusal_;
  Status why_not_;  // refusal of a node that answered at an earlier target
  zmq::socket_t socket_;
  std::optional<SocketMonitor> monitor_;
};

}  // namespace troupe
