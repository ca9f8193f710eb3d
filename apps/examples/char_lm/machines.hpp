// The machines of a training: this process, or also named nodes of a cluster, which `troupe node`
// started.
//
//   Machines machines({.workers = 2}, {});
//   Machines machines({}, {.join = {"tcp://127.0.0.1:7117"}, .nodes = {"a", "b", "c"}});
//   machines.engine();   machines.device_of(2);   // where the third replica computes
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
    named_ = cluster.nodes;
    nodes_ = cluster.goes_on ? wait_for_some(cluster.comes_back) : named_;
    if (cluster.http >= 0)
      page_ = std::make_unique<InspectionServer>(*node_, page_at(cluster.http));
  }

  Engine& engine() { return node_ ? node_->engine() : *alone_; }
  /// The nodes that share a batch; empty: this process computes it alone.
  const std::vector<std::string>& nodes() const { return nodes_; }
  /// Returns replica r's device: a node with several has a device for each. Empty: this process's.
  std::string device_of(std::int64_t replica) const {
    if (nodes_.empty()) return {};
    const auto n = static_cast<std::int64_t>(nodes_.size());
    return fmt::format("/node:{}/cpu:{}", nodes_[static_cast<std::size_t>(replica % n)],
                       replica / n);
  }
  /// Returns the devices of a mesh of `size` places: as many of each node, one node after the
  /// other, or all of this process. Throws invalid_argument if the nodes do not divide the places.
  std::vector<std::string> devices(std::int64_t size) const {
    const auto n = std::max<std::int64_t>(1, static_cast<std::int64_t>(nodes_.size()));
    if (size % n != 0)
      throw Error(Code::invalid_argument,
                  fmt::format("a mesh of {} devices has no equal share for each of {} nodes: give "
                              "--mesh a multiple of them, or --nodes fewer",
                              size, n));
    std::vector<std::string> all;
    for (std::int64_t i = 0; i < size; ++i) {
      const std::string device = fmt::format("cpu:{}", i % (size / n));
      all.push_back(nodes_.empty()
                        ? device
                        : fmt::format("/node:{}/{}",
                                      nodes_[static_cast<std::size_t>(i / (size / n))], device));
    }
    return all;
  }
  /// True if more of the named nodes are there than take part.
  bool has_more_nodes() const { return node_ && those_there().size() > nodes_.size(); }
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
  /// Returns the named nodes that are connected and not being drained.
  std::vector<std::string> those_there() const {
    std::vector<std::string> there;
    const std::vector<std::string> connected = node_->nodes();
    for (const std::string& name : named_)
      for (const auto& m : node_->members())
        if (m.name == name && m.labels.find("draining=yes") == std::string::npos &&
            std::find(connected.begin(), connected.end(), name) != connected.end())
          there.push_back(name);
    return there;
  }
  /// Returns all named nodes, or those that are there after a while.
  std::vector<std::string> wait_for_some(std::chrono::milliseconds limit) const {
    try {
      node_->wait_for(named_, limit);
    } catch (const Error& e) {
      if (e.code() != Code::deadline_exceeded) throw;
    }
    std::vector<std::string> there = those_there();
    if (there.empty())
      throw Error(Code::unavailable,
                  fmt::format("none of the nodes {} is there", fmt::join(named_, ", ")));
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
  std::vector<std::string> named_, nodes_;  // all of the options; those that take part
  std::unique_ptr<InspectionServer> page_;
};

}  // namespace troupe::char_lm
