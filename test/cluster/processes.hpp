// Nodes that are processes of their own, `troupe node`, over ZeroMQ on loopback, for tests.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

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
    auto a = make_a(std::move(engine), {b_.address});
    a->wait_for({"b", "c"}, std::chrono::seconds(60));
    return a;
  }

  /// An `a` within this program, for others to join or that joins them.
  static std::unique_ptr<ClusterNode> make_a(EngineOptions engine, std::vector<std::string> join = {}) {
    NodeOptions o;
    o.name = "a";
    o.engine = std::move(engine);
    o.membership.suspicion_factor = 100;  // slow machines are not what is tested
    o.join = std::move(join);
    o.transport = [](PeerInfo self) {
      self.address = "tcp://127.0.0.1:0";
      return make_zeromq_transport(std::move(self), {});
    };
    return std::make_unique<ClusterNode>(std::move(o));
  }

  /// They end well, which is where sanitizers say what they have found.
  ~NodeProcesses() {
    for (NodeProcess* node : {&c_, &b_}) {
      node->process.interrupt(SIGTERM);
      const Outcome o = node->process.finish();
      if (o.code == 0) continue;
      std::fprintf(stderr, "a node ends with %d: %s\n", o.code, o.error.c_str());
      std::fflush(stderr);
      _exit(1);  // the tests have been judged
    }
  }

 private:
  NodeProcesses() = default;
  static NodeProcess node(const Folder& folder, const std::string& name, std::vector<std::string> more) {
    return NodeProcess(folder, name, std::move(more), "tcp://127.0.0.1:0", {"/usr/bin/setpriv", "--pdeathsig", "KILL"});  // a test program that is ended leaves none
  }
  Folder of_b_, of_c_;  // and what each has said
  NodeProcess b_ = node(of_b_, "b", {}), c_ = node(of_c_, "c", {"--join", b_.address});
};

}  // namespace troupe::test
