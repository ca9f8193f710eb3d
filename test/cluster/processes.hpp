// Nodes that are processes of their own, `troupe node`, over ZeroMQ on loopback, for tests.
#pragma once

#include <chrono>
#include <cstdlib>
#include <memory>
#include <utility>

#include <troupe/cluster/node.hpp>
#include <troupe/cluster/zeromq.hpp>
#include <troupe/test/apps/node_process.hpp>

namespace troupe::test {

inline bool is_over_processes() { return std::getenv("TROUPE_OVER_PROCESSES") != nullptr; }

/// b and c, for as long as this program runs, and for each test program an `a` within it, which joins them.
class NodeProcesses {
 public:
  static NodeProcesses& all() {
    static NodeProcesses processes;
    return processes;
  }

  std::unique_ptr<ClusterNode> join(EngineOptions engine) {
    NodeOptions o;
    o.name = "a";
    o.engine = std::move(engine);
    o.membership.suspicion_factor = 100;  // slow machines are not what is tested
    o.join = {b_.address};
    o.transport = [](PeerInfo self) {
      self.address = "tcp://127.0.0.1:0";
      return make_zeromq_transport(std::move(self), {});
    };
    auto a = std::make_unique<ClusterNode>(std::move(o));
    a->wait_for({"b", "c"}, std::chrono::seconds(60));
    return a;
  }

 private:
  Folder folder_;
  NodeProcess b_{folder_, "b"}, c_{folder_, "c", {"--join", b_.address}};
};

}  // namespace troupe::test
