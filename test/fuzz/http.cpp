// libFuzzer: the head of a request, sent to two servers of one node: one requires no token, the
// other a secret one. Instruments: cluster/inspect/inspection_server.cpp
// cluster/inspect/http_acceptor.cpp
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <troupe/cluster/inspect/inspection_server.hpp>
#include <troupe/cluster/transport/net/keys.hpp>
#include <troupe/test/fuzz/input.hpp>
#include <troupe/test/fuzz/node_a.hpp>
#include <troupe/troupe.hpp>

using namespace troupe;
using namespace troupe::test;

namespace {

/// A node that has run a program, and its servers.
class Served {
 public:
  Served() {
    Expr x = graph_.input("x", DType::f32, {2});
    program_ = node_.engine().compile(graph_, {x}, {x + 1.0});
    program_({Tensor::of<float>({1, 2})});
  }
  std::string open() const { return open_.address(); }
  std::string closed() const { return closed_.address(); }

 private:
  static InspectionOptions demanding() {
    InspectionOptions o;
    o.token = generate_keys().secret_key;
    return o;
  }

  InProcessNetwork network_;
  ClusterNode node_{node_a(network_)};
  Graph graph_;
  Function program_;
  InspectionServer open_{node_, {}}, closed_{node_, demanding()};
};

/// Up to its end, or for as long as it takes no more than two seconds to go on: a trace takes as
/// many as it is asked for.
std::string answer_of(const std::string& url, const std::string& head) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(socket, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) std::abort();
  if (::send(socket, head.data(), head.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(head.size()))
    std::abort();
  std::string answer;
  char block[16384];
  for (pollfd one{socket, POLLIN, 0}; ::poll(&one, 1, 2000) == 1;) {
    const ssize_t n = ::recv(socket, block, sizeof block, 0);
    if (n <= 0) break;
    answer.append(block, static_cast<std::size_t>(n));
  }
  ::close(socket);
  return answer;
}

// Any client may learn that the node is up, "ok" and a line's end, and gets the page, which holds
// no data and may be cached.
bool tells_of_cluster(const std::string& answer) {
  const std::string head = answer.substr(0, answer.find("\r\n\r\n") + 2);
  return head.starts_with("HTTP/1.1 200 ") &&
         head.find("\r\nCache-Control: no-store\r\n") != std::string::npos &&
         head.find("\r\nContent-Length: 3\r\n") == std::string::npos;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  for (const char* asked :
       {"GET /healthz", "GET /members", "HEAD /metrics", "GET /api/state", "GET /api/plan?id=a/1",
        "GET /api/counters?plan=a/1&since=0", "GET /api/actor?id=a/1:0",
        "GET /api/events?since=0&until=9&limit=5", "GET /", "GET /assets/main.js",
        "POST /api/state", "GET /%61pi/scalars?since=-1"})
    seed(std::string(asked) + " HTTP/1.1\r\nHost: 127.0.0.1:7200");
  seed(
      "GET /members?token=0123456789abcdef HTTP/1.1\r\nHost: nodes.example:80\r\nAccept-Encoding: "
      "br, gzip;q=1\r\nRange: bytes=0-1,0-1\r\nContent-Length: 5");
  seed(
      "GET /api/state HTTP/1.0\r\nhost: [::1]\r\nAuthorization: Bearer "
      "0123456789abcdef\r\nConnection: keep-alive");
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  // for the life of the process: no wait for clients in service
  static Served& served = *new Served;
  // or it is waited for
  const std::string head = std::string(reinterpret_cast<const char*>(data), size) + "\r\n\r\n";
  const std::string open = answer_of(served.open(), head),
                    closed = answer_of(served.closed(), head);
  for (const std::string& answer : {open, closed})
    if (!answer.empty() && !answer.starts_with("HTTP/1.1 ")) std::abort();
  if (tells_of_cluster(closed)) std::abort();
  return 0;
}
