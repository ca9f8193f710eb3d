// A router's surroundings in which nothing happens.
#pragma once

#include <troupe/cluster/transport/frame_link.hpp>

#include <troupe/devices/base/internal.hpp>

namespace troupe::test {

class Still : public FrameLink, public TransportListener {
 public:
  virtual ~Still() = default;
  Connection dial(const std::string&) override { return 100; }
  bool send(Connection, const Ref<OutFrame>&) override { return true; }
  void close(Connection) override {}
  Time now() const override { return std::chrono::seconds(1); }
  void connected(Peer, const PeerInfo&) override {}
  void refused(const std::string&, const Status&) override {}
  void received(Peer, Lane, Message) override {}
  void lost(Peer, const Status&) override {}
};

}  // namespace troupe::test
