// The parts of a node that its services share. NodeCore owns them; they outlive the services.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <troupe/cluster/node/cluster_view.hpp>
#include <troupe/cluster/node/peer_quota.hpp>
#include <troupe/cluster/node/request_table.hpp>

namespace troupe {

struct NodeParts {
  const NodeId& self;            // without an address
  const std::string& container;  // container of this node's programs; empty: private states
  const detail::EarlyLimits& limits;
  Transport& transport;
  EngineImpl& engine;
  ClusterView& view;
  RequestTable& requests;
  PeerQuota& quota;
  Waiter& waiter;
  std::function<std::int64_t()> time_ns;  // since the Unix epoch, by this node's clock

  /// Writes lines to the engine's log.
  void log(const std::vector<LogRecord>& records) const {
    if (const auto& log = engine.options().log)
      for (const LogRecord& r : records) log(r);
  }
};

}  // namespace troupe
