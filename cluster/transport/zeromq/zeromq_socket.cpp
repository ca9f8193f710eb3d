#include <troupe/cluster/transport/zeromq/zeromq_socket.hpp>

#include <cstring>

namespace troupe {

namespace {

// ZeroMQ refuses larger parts: no wire frame of ours comes near
constexpr std::int64_t kPartBytes = 16 << 20;
// ms, for the last wire frame of a connection that ends well
constexpr int kLinger = 500;

/// A part that refers to the wire frame's memory, which ZeroMQ's thread releases.
zmq::message_t part(const Ref<OutFrame>& frame, const void* data, std::size_t bytes) {
  if (bytes <= 32) return zmq::message_t(data, bytes);  // it lies in ZeroMQ's handle
  frame->retain();
  return zmq::message_t(
      const_cast<void*>(data), bytes,
      [](void*, void* hint) { static_cast<OutFrame*>(hint)->release(); }, frame.get());
}

}  // namespace

void configure(zmq::socket_t& socket, Time handshake) {
  socket.set(zmq::sockopt::sndhwm, 0);  // the session quota bounds the wire frames that ZeroMQ gets
  socket.set(zmq::sockopt::rcvhwm, 1000);
  socket.set(zmq::sockopt::maxmsgsize, kPartBytes);
  socket.set(zmq::sockopt::tcp_keepalive, 1);
  socket.set(zmq::sockopt::linger, kLinger);
  socket.set(zmq::sockopt::handshake_ivl,
             static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(handshake).count()));
}

bool send_frame(zmq::socket_t& socket, const Ref<OutFrame>& frame) {
  const bool has_bulk = frame->bulk_bytes != 0;
  zmq::message_t header = part(frame, frame->header.data(), frame->header.size());
  if (!socket.send(header, has_bulk ? zmq::send_flags::dontwait | zmq::send_flags::sndmore
                                    : zmq::send_flags::dontwait))
    return false;
  if (!has_bulk) return true;
  zmq::message_t bulk = part(frame, frame->bulk, frame->bulk_bytes);
  return socket.send(bulk, zmq::send_flags::dontwait).has_value();
}

SocketMonitor::SocketMonitor(zmq::context_t& context, zmq::socket_t& socket,
                             const std::string& name, int events)
    : ear_(context, zmq::socket_type::pair) {
  // Without a limit: at one, ZeroMQ's thread would wait for us, and everybody for it.
  ear_.set(zmq::sockopt::rcvhwm, 0);
  const std::string at = "inproc://monitor-" + name;
  if (zmq_socket_monitor(socket.handle(), at.c_str(), events) != 0) throw zmq::error_t();
  ear_.connect(at);
}

bool SocketMonitor::next(SocketEvent& event) {
  zmq::message_t what, where;
  while (ear_.recv(what, zmq::recv_flags::dontwait)) {
    [[maybe_unused]] const auto got = ear_.recv(where, zmq::recv_flags::dontwait);
    if (what.size() < sizeof event.what + sizeof event.value) continue;
    std::memcpy(&event.what, what.data(), sizeof event.what);
    std::memcpy(&event.value, static_cast<const char*>(what.data()) + sizeof event.what,
                sizeof event.value);
    return true;
  }
  return false;
}

}  // namespace troupe
