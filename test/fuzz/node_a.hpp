// The node that fuzz targets of inspections look at: `a`, alone, with one worker.
#pragma once

#include <utility>

#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/transport/sim/in_process.hpp>

namespace troupe::test {

inline NodeOptions node_a(InProcessNetwork& network) {
  NodeOptions o;
  o.name = "a";
  o.engine.workers = 1;
  o.transport = [&network](PeerInfo self) {
    self.address = "inproc://a";
    return network.make_transport(std::move(self));
  };
  return o;
}

}  // namespace troupe::test
