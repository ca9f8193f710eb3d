// Where a training computes: in this process, or on named nodes of a cluster as well, which `troupe node` started.
//
//   Machines machines({.workers = 2}, {});
//   Machines machines({}, {.join = {"tcp://127.0.0.1:7117"}, .nodes = {"a", "b", "c"}});
//   machines.engine();   machines.devices();   // one share of the rows of a batch goes to each
//
// Weights, their optimizer and the carried states stay in this process; a node of the cluster gets its share of every
// batch and the weights, runs the loop over time and back, and sends gradients. One that is lost ends the step with `unavailable`.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>

#include <troupe/cluster/keys.hpp>
#include <troupe/cluster/node.hpp>
#include <troupe/cluster/zeromq.hpp>
#include <troupe/troupe.hpp>

namespace troupe::char_lm {

struct ClusterOptions {
  std::vector<std::string> join;   // addresses
  std::vector<std::string> nodes;  // names of those that compute; none: no cluster
  std::string keys;                // the folder of the keys of this program's node; empty: none, and loopback only
  std::function<std::unique_ptr<Transport>(PeerInfo self)> transport = {};  // empty: TCP
};

class Machines {
 public:
  /// Throws if the nodes are not there within half a minute, naming them.
  Machines(const EngineOptions& engine, const ClusterOptions& cluster) {
    if (cluster.nodes.empty()) {
      alone_ = std::make_unique<Engine>(engine);
      return;
    }
    NodeOptions o;
    o.name = fmt::format("char_lm-{}", getpid());
    o.transport = cluster.transport ? cluster.transport : [keys = cluster.keys](PeerInfo self) {
      ZeroMqOptions tcp;
      if (!keys.empty()) tcp.keys = read_keys(keys);
      return make_zeromq_transport(std::move(self), tcp);
    };
    o.join = cluster.join;
    o.engine = engine;
    node_ = std::make_unique<ClusterNode>(std::move(o));
    node_->wait_joined(kPatience);
    node_->wait_for(cluster.nodes, kPatience);
    for (const std::string& name : cluster.nodes) devices_.push_back(fmt::format("/node:{}/cpu:0", name));
  }

  Engine& engine() { return node_ ? node_->engine() : *alone_; }
  /// Of the nodes that share a batch; empty: this process has it alone.
  const std::vector<std::string>& devices() const { return devices_; }

 private:
  static constexpr std::chrono::seconds kPatience{30};
  std::unique_ptr<Engine> alone_;
  std::unique_ptr<ClusterNode> node_;
  std::vector<std::string> devices_;
};

}  // namespace troupe::char_lm
