// This program as one more node, and what it has a node that is a process do, for tests.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/test/unit_test.hpp>

#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/transport/net/keys.hpp>
#include <troupe/cluster/transport/zeromq/zeromq.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

/// A node `a`, whose transport finds a lost node within seconds.
inline std::unique_ptr<ClusterNode> first_client(const std::string& join,
                                                 const EngineOptions& engine = {},
                                                 const std::string& container = {}) {
  NodeOptions o;
  o.name = "a";
  o.container = container;
  o.engine = engine;
  o.join = {join};
  o.transport = [](PeerInfo self) {
    self.address = "tcp://127.0.0.1:0";
    ZeroMqOptions quick;
    quick.router.away = std::chrono::seconds(1);
    return make_zeromq_transport(std::move(self), quick);
  };
  return std::make_unique<ClusterNode>(std::move(o));
}

/// `join`: HOST:PORT, with tcp:// or without. `shares_memory`: as processes of one host do; else
/// large payload goes over TCP.
inline std::unique_ptr<ClusterNode> client(const std::string& name, const std::string& join,
                                           std::optional<Keys> keys, bool shares_memory = true) {
  NodeOptions o;
  o.name = name;
  o.join = {join};
  o.engine.workers = 1;
  o.membership.period *= 10;  // processes under load, on a real clock
  o.membership.timeout *= 10;
  o.membership.suspicion *= 10;
  o.transport = [&](PeerInfo self) {
    self.address = "tcp://127.0.0.1:0";
    ZeroMqOptions options;
    options.keys = keys;
    options.shared_memory = shares_memory;
    return make_zeromq_transport(std::move(self), options);
  };
  return std::make_unique<ClusterNode>(std::move(o));
}

/// Returns that node's report on its engine.
inline EngineSnapshot engine_of(const ClusterNode& a, const std::string& name) {
  const ClusterReport report = a.inspect({}, std::chrono::seconds(60), name);
  BOOST_REQUIRE(report.size() == 1u);
  BOOST_REQUIRE_MESSAGE(report[0].has_answered, report[0].why);
  return report[0].report.engine;
}

/// How many runs it has, under way or over; and plans besides.
inline std::size_t runs_on(const ClusterNode& a, const std::string& name) {
  const EngineSnapshot engine = engine_of(a, name);
  return engine.runs.size() + engine.recent.size();
}
inline std::size_t made_on(const ClusterNode& a, const std::string& name) {
  const EngineSnapshot engine = engine_of(a, name);
  return engine.plans.size() + engine.runs.size() + engine.recent.size() + engine.errors.size();
}

inline double sum_on(ClusterNode& here, const std::string& node) {
  Graph g;
  Expr y;
  {
    auto there = g.on_device("/node:" + node + "/cpu:0");
    y = matmul(g.ones(DType::f32, {8, 8}), g.ones(DType::f32, {8, 8}));
  }
  return here.engine().run(g, {}, {y})[0].at(0);
}

}  // namespace troupe::test
