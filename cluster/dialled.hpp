// A connection that was dialled: a DEALER that ZeroMQ never reconnects. With keys it goes through those of the list until the
// other end proves to hold one (gate.hpp); what is sent before waits.
//
//   Dialled d(context, gate, options, number, "tcp://10.0.0.7:7117");
//   d.send(frame);
//   if (Status over = d.watch(); !over.ok()) …      // now and then: what has ZeroMQ to say?
//
// Threads: the router's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <troupe/cluster/gate.hpp>
#include <troupe/cluster/zeromq.hpp>
#include <troupe/cluster/zeromq_socket.hpp>

namespace troupe {

class Dialled {
 public:
  /// Throws invalid_argument or failed_precondition for an address that is none, or that nobody may reach.
  Dialled(zmq::context_t& context, Gate& gate, const ZeroMqOptions& options, Connection number, std::string address);
  ~Dialled();
  Dialled(const Dialled&) = delete;
  Dialled& operator=(const Dialled&) = delete;

  bool send(const Ref<OutFrame>& frame);
  /// Not ok: it is over.
  Status watch();
  /// The key that the other end has proved; empty without keys, and before.
  const std::string& key() const { return key_; }
  /// Sockets differ where it did.
  std::size_t attempts() const { return attempts_; }
  const std::string& address() const { return address_; }
  /// The address that it was connected with, in numbers: names are not looked up twice, nor for others than this; empty before.
  const std::string& reached() const { return reached_; }
  zmq::socket_t& socket() { return socket_; }
  void* monitor() { return monitor_->handle(); }

 private:
  enum class State { nothing, connected, accepted };

  void attempt();
  Status take(const SocketEvent& event);

  zmq::context_t& context_;
  Gate& gate_;
  const ZeroMqOptions& options_;
  const std::string name_;  // of its monitors
  const std::string address_;
  std::vector<std::string> keys_;  // to be tried
  std::size_t attempts_ = 0;
  State state_ = State::nothing;
  std::string key_, reached_;
  std::vector<Ref<OutFrame>> early_;  // frames that wait for the handshake
  std::optional<SocketEvent> refusal_;
  zmq::socket_t socket_;
  std::optional<SocketMonitor> monitor_;
};

}  // namespace troupe
