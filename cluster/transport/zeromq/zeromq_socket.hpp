// What all sockets of the transport have in common: their options, how a frame leaves by them, what
// ZeroMQ says of them.
#pragma once

#include <cstdint>
#include <string>

#include <zmq.hpp>

#include <troupe/cluster/transport/carrier.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {

/// Options of whatever carries frames. `handshake`: strangers have so long to say who they are.
void configure(zmq::socket_t& socket, Time handshake);

/// False if the connection has broken, or never was.
bool send_frame(zmq::socket_t& socket, const Ref<OutFrame>& frame);

struct SocketEvent {
  std::uint16_t what = 0;  // ZMQ_EVENT_…
  std::int32_t value = 0;
};

/// What ZeroMQ reports of a socket, as long as this lives and the socket is open.
class SocketMonitor {
 public:
  /// `name`: another one for each monitor of a context.
  SocketMonitor(zmq::context_t& context, zmq::socket_t& socket, const std::string& name,
                int events);
  /// The next that has not been seen; false if there is none.
  bool next(SocketEvent& event);
  void* handle() { return ear_.handle(); }

 private:
  zmq::socket_t ear_;
};

}  // namespace troupe
