// What a node says of itself over HTTP, to probes and to whoever operates it.
//
//   StatusPage page(here, "127.0.0.1", 7118);    // until it is dropped; page.port()
//
//   /healthz   200 `ok` once the node is in the cluster; 503 and why before, and when another has its name
//   /members   JSON: the nodes that are known, with address, state, incarnation, labels, and version of Troupe
//
// It only reads. Two requests are served at a time, a few more wait; who is slow or says too much is hung up on.
#pragma once

#include <memory>
#include <string>

#include <troupe/cluster/node.hpp>

namespace troupe::verbs {

class StatusPage {
 public:
  /// Port 0 takes any that is free. Throws unavailable if the port is taken. The node outlives it.
  StatusPage(const ClusterNode& node, const std::string& host, int port);
  ~StatusPage();
  std::string address() const;  // http://HOST:PORT

 private:
  class Server;
  std::unique_ptr<Server> server_;
};

}  // namespace troupe::verbs
