// Serves the state of a node and its cluster over HTTP: to probes, to the verbs of `troupe`, to a
// browser, to Prometheus.
//
//   InspectionServer server(node, {.host = "127.0.0.1", .port = 7200});  // until it is dropped
//   server.address()                                                     // http://127.0.0.1:7200
//
// INSPECTION.md has the answers. The server only reads. On loopback it serves any client, but no
// page of another name in a browser. Elsewhere it demands a token: `Authorization: Bearer TOKEN`,
// or `?token=TOKEN`. A few requests are served at a time and some more wait; past that it answers
// 503. A client that sends or reads slowly blocks no other (http_acceptor.hpp).
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <troupe/cluster/node/node.hpp>

namespace troupe {

class Records;

/// Each answer has this header: it distinguishes a node of this version from any other server.
inline constexpr const char* kInspectionHeader = "Troupe-Inspection";
inline constexpr const char* kInspectionVersion = "2";

struct InspectionOptions {
  std::string host = "127.0.0.1";
  int port = 0;       // 0: any that is free
  std::string token;  // clients must send it; required if `host` is not loopback
  int serve = 4;      // requests at a time
  int wait = 60;      // requests that wait for their turn; further ones get 503
  int head = 5;       // seconds that the head of a request may take
  // Rows of plans whose counters are remembered: actors and edges, some 300 bytes each, so 120 MB.
  // A plan that alone has more is remembered too.
  std::size_t rows = 400'000;
};

class InspectionServer {
 public:
  using Query = std::map<std::string, std::string>;

  /// Throws unavailable if the port is taken, and invalid_argument for an address that is not
  /// loopback without a token. The node outlives it.
  InspectionServer(const ClusterNode& node, InspectionOptions options);
  ~InspectionServer();
  std::string address() const;  // http://HOST:PORT
  /// Answers GET `path` with what `answer` makes of the query: JSON. It is called from several
  /// threads; an Error that it throws becomes a 404 (not_found) or a 400.
  void serve(const std::string& path, std::function<std::string(const Query&)> answer);
  /// The page's curves, as `/api/scalars` of every node of the cluster. The records outlive the
  /// server.
  void serve(const Records& records);

 private:
  class Server;
  std::unique_ptr<Server> server_;
};

}  // namespace troupe
