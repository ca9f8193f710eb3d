// The machines of a training: this process, or also named nodes of a cluster, which `troupe node`
// started.
//
//   Machines machines({.workers = 2}, {});
//   Machines machines({}, {.join = {"tcp://127.0.0.1:7117"}, .nodes = {"a", "b", "c"}});
//   machines.engine();   machines.devices();   // one share of the rows of a batch goes to each
//
// Weights, their optimizer and the carried states stay in this process; a node of the cluster gets
// its share of every batch and the weights, runs the loop over time and back, and sends gradients.
// A lost node ends the step with `unavailable`; machines that are made again with `goes_on` wait
// for it a moment, and take the nodes that are there.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/cluster.hpp>
#include <troupe/troupe.hpp>

namespace troupe::char_lm {

struct ClusterOptions {
  std::vector<std::string> join;   // addresses
  std::vector<std::string> nodes;  // names of the nodes that compute; none: no cluster
  // a port on loopback for the page of this process; 0: any that is free, -1: no page
  int http = -1;
  // the folder of the keys of this program's node; empty: none, and loopback only
  std::string keys;
  std::function<std::unique_ptr<Transport>(PeerInfo self)> transport = {};  // empty: TCP
  bool goes_on = false;  // after a loss: without nodes that do not come back
  std::chrono::milliseconds comes_back = std::chrono::seconds(10);  // so long they are waited for
};

class Machines {
 public:
  /// Throws if the nodes are not there within half a minute, naming them.
  Machines(const EngineOptions& engine, const ClusterOptions& cluster) {
    if (cluster.nodes.empty() && cluster.http < 0) {
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
    if (!cluster.nodes.empty() && !cluster.goes_on) node_->wait_for(cluster.nodes, kPatience);
    for (const std::string& name : cluster.goes_on ? those_there(cluster) : cluster.nodes)
      devices_.push_back(fmt::format("/node:{}/cpu:0", name));
    if (cluster.http >= 0)
      page_ = std::make_unique<InspectionServer>(*node_, page_at(cluster.http));
  }

  Engine& engine() { return node_ ? node_->engine() : *alone_; }
  /// The nodes that share a batch; empty: this process computes it alone.
  const std::vector<std::string>& devices() const { return devices_; }
  /// Null without a page.
  InspectionServer* page() { return page_.get(); }
  /// Returns the addresses of the cluster's nodes, as far as they are known.
  std::vector<std::string> addresses() const {
    std::vector<std::string> all;
    if (node_)
      for (const auto& m : node_->members())
        if (m.name != node_->name() && !m.address.empty()) all.push_back(m.address);
    return all;
  }

 private:
  /// Returns the nodes that are connected and not being drained: all, or after a while some.
  std::vector<std::string> those_there(const ClusterOptions& cluster) const {
    try {
      node_->wait_for(cluster.nodes, cluster.comes_back);
    } catch (const Error& e) {
      if (e.code() != Code::deadline_exceeded) throw;
    }
    std::vector<std::string> there;
    const std::vector<std::string> connected = node_->nodes();
    for (const std::string& name : cluster.nodes)
      for (const auto& m : node_->members())
        if (m.name == name && m.labels.find("draining=yes") == std::string::npos &&
            std::find(connected.begin(), connected.end(), name) != connected.end())
          there.push_back(name);
    if (there.empty())
      throw Error(Code::unavailable,
                  fmt::format("none of the nodes {} is there", fmt::join(cluster.nodes, ", ")));
    return there;
  }
  static InspectionOptions page_at(int port) {
    InspectionOptions options;
    options.port = port;
    return options;
  }
  static constexpr std::chrono::seconds kPatience{30};
  std::unique_ptr<Engine> alone_;
  std::unique_ptr<ClusterNode> node_;
  std::vector<std::string> devices_;
  std::unique_ptr<InspectionServer> page_;
};

}  // namespace troupe::char_lm
