// A stand-in for a node, for tests of the verbs' handling of its answers.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include <httplib.h>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <troupe/cluster/inspect/inspection_server.hpp>

namespace troupe::test {

/// Answers the verbs as a node would, with a test's data, until it is destroyed.
struct AsNode {
  httplib::Server server;
  int port;
  std::thread serves;
  AsNode() : port(server.bind_to_any_port("127.0.0.1")) {
    BOOST_REQUIRE(port > 0);
    server.set_default_headers({{kInspectionHeader, kInspectionVersion}});
  }
  void get(const char* path, std::function<nlohmann::json(const httplib::Request&)> answer) {
    server.Get(path, [answer](const httplib::Request& in, httplib::Response& out) {
      const nlohmann::json said = answer(in);
      if (said.contains("error")) out.status = 404;
      out.set_content(said.dump(), "application/json");
    });
  }
  std::string start() {
    serves = std::thread([this] { server.listen_after_bind(); });
    while (!server.is_running()) std::this_thread::yield();  // or it is stopped before it runs
    return std::to_string(port);
  }
  ~AsNode() {
    server.stop();
    if (serves.joinable()) serves.join();
  }
};

}  // namespace troupe::test
