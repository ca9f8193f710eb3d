// Transports within one process: engines of one program, and tests.
//
//   InProcessNetwork network;
//   auto a = network.make_transport({.name = "a", .incarnation = 1, .address = "inproc://a"});
//   auto b = network.make_transport({.name = "b", .incarnation = 1});  // connects, does not listen
//   a->start(listener_a);  b->start(listener_b);  b->connect("inproc://a");
//
// Tensors are passed as handles: both ends share the buffer, which is read-only as long as they do.
// Nothing is lost here, so a connection ends only by `disconnect` and `stop`, and there is no
// clock.
//
// Threads: each transport calls its listener on a thread of its own. A stepped network has no
// threads: `step` delivers one event on the caller's, transport by transport in turn.
#pragma once

#include <memory>

#include <troupe/cluster/transport/transport.hpp>

namespace troupe {

class InProcessNetwork {
 public:
  enum class Delivery { threads, stepped };

  explicit InProcessNetwork(Delivery delivery = Delivery::threads);
  ~InProcessNetwork();  // its transports may outlive it
  InProcessNetwork(const InProcessNetwork&) = delete;
  InProcessNetwork& operator=(const InProcessNetwork&) = delete;

  /// `self.address` is `inproc://NAME` or empty; an empty `self.engine` is this version of Troupe.
  std::unique_ptr<Transport> make_transport(PeerInfo self);

  /// Delivers the next event; false if there is none. Stepped only.
  bool step();

  class Hub;  // state that its transports share

 private:
  std::shared_ptr<Hub> hub_;
};

}  // namespace troupe
