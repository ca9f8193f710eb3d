// Two nodes over TCP, one of them a process, seen through the inspection server of the other, for
// tests.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <httplib.h>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <troupe/cluster/inspect/inspection_server.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/transport/zeromq/zeromq.hpp>
#include <troupe/test/process/node_process.hpp>

namespace troupe::test {

/// Declares no node dead before its session has ended, 10 s after it was heard last: there is time
/// to ask for hangs.
inline MembershipOptions patient() {
  MembershipOptions m;
  m.suspicion = std::chrono::seconds(100);
  return m;
}

/// Returns the JSON answer to a request. Slowness of the machine is not tested.
inline nlohmann::json json_at(const std::string& url, const std::string& path, int status = 200) {
  httplib::Client c(url);
  c.set_read_timeout(60);
  const auto answer = c.Get(path);
  BOOST_REQUIRE_MESSAGE(answer, path);
  BOOST_TEST(answer->status == status, path << " " << answer->body.substr(0, 200));
  nlohmann::json j = nlohmann::json::parse(answer->body, nullptr, false);
  BOOST_REQUIRE(!j.is_discarded());
  return j;
}

/// This program as node `a`, which serves inspections and knows b, a process.
struct Cluster {
  Folder folder;
  NodeProcess b;
  std::unique_ptr<ClusterNode> a;
  std::unique_ptr<InspectionServer> server;
  std::string url;
  explicit Cluster(InspectionOptions options = {}, MembershipOptions membership = patient(),
                   const std::string& log = "text")
      : b(folder, "b", {"--http", "0", "--log", log}) {
    NodeOptions o;
    o.name = "a";
    o.membership = membership;
    o.join = {b.address};
    o.transport = [](PeerInfo self) {
      self.address = "tcp://127.0.0.1:0";
      return make_zeromq_transport(std::move(self), {});
    };
    a = std::make_unique<ClusterNode>(std::move(o));
    a->wait_for({"b"}, std::chrono::seconds(60));
    server = std::make_unique<InspectionServer>(*a, std::move(options));
    url = server->address();
  }
  ~Cluster() { server.reset(); }

  httplib::Client http() const {
    httplib::Client c(url);
    c.set_read_timeout(60);
    return c;
  }
  nlohmann::json get(const std::string& path, int status = 200) const {
    return json_at(url, path, status);
  }
  Outcome verb(std::vector<std::string> arguments, const std::string& node = {}) const {
    arguments.insert(arguments.begin(), binary());
    // slow machines are not what is tested
    arguments.insert(arguments.begin() + 2,
                     {"--node", node.empty() ? url : node, "--patience", "60"});
    return run(folder.path(), arguments);
  }
};

}  // namespace troupe::test
