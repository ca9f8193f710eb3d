// The user's program can be a node of a cluster, and be looked at.
#include <troupe/cluster.hpp>

#include <utility>

using namespace troupe;

bool joins();

bool joins() {
  const auto tcp = [](PeerInfo self) {
    self.address = "tcp://127.0.0.1:0";
    return make_zeromq_transport(std::move(self));
  };
  const ClusterNode here({.name = "me", .transport = tcp});
  const InspectionServer page(here, {});
  return here.name() == "me" && page.address().starts_with("http://127.0.0.1:") &&
         is_key(generate_keys().public_key);
}
