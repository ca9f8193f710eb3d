// Common parts of the transport's sockets: their options, how a wire frame leaves by them, and
// ZeroMQ's reports of them.
#pragma once

#include <cstdint>
#include <string>

#include <zmq.hpp>

#include <troupe/cluster/transport/frame_link.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {

/// Sets the options of a socket that carries wire frames. `handshake`: the time for a stranger's
/// handshake.
void configure(zmq::socket_t& socket, Time handshake);

/// False if the connection has broken, or never was.
bool send_frame(zmq::socket_t& socket, const Ref<OutFrame>& frame);

struct SocketEvent {
  std::uint16_t what = 0;  // ZMQ_EVENT_…
  std::int32_t value = 0;
};

/// Reports ZeroMQ's events of a socket, while this object lives and the socket is open.
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
