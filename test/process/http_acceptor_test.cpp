// The inspection server under load: crowds, slow clients, requests in pieces, and the clients that
// get compressed answers.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <future>
#include <latch>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <fmt/format.h>
#include <httplib.h>

#include <troupe/cluster/inspect/http_acceptor.hpp>
#include <troupe/cluster/inspect/inspection_server.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/test/process/connection.hpp>
#include <troupe/test/process/node_process.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(http_acceptor_test)

namespace {

using namespace std::chrono_literals;

}  // namespace

BOOST_AUTO_TEST_CASE(requests_beyond_the_queue_are_refused) {
  InspectionOptions few;
  few.serve = 1;
  few.wait = 2;
  Nodes nodes(1);
  InspectionServer server(nodes[0], few);
  std::promise<void> began, goes_on;
  server.serve("/held", [&, held = goes_on.get_future().share()](const auto&) {
    began.set_value();
    held.wait();
    return std::string("{}");
  });
  const auto ask = [&](const std::string& path) {
    const int fd = dial(server.address());
    say(fd, "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
    return fd;
  };
  std::vector<int> asked{ask("/held")};
  began.get_future().wait();
  std::vector<pollfd> three;  // any of them may be heard last
  for (int i = 0; i < 3; ++i) three.push_back({ask("/healthz"), POLLIN, 0});
  while (poll(three.data(), three.size(), -1) < 0) {}
  const auto last =
      std::find_if(three.begin(), three.end(), [](const pollfd& one) { return one.revents != 0; });
  for (const pollfd& one : three)
    if (&one != &*last) asked.push_back(one.fd);
  const std::string refused = heard(last->fd);
  BOOST_TEST(refused.starts_with("HTTP/1.1 503"), refused);
  for (const char* part : {"Retry-After: 1", "come back in a second"})
    BOOST_TEST(has(refused, part), refused);
  goes_on.set_value();
  for (const int fd : asked) {
    const std::string answer = heard(fd);
    BOOST_TEST(answer.starts_with("HTTP/1.1 200"), answer);
  }
}

// Thousands of clients ask at once: as many as may wait are answered in the end, and so are those
// in service; all others get 503. A run proceeds meanwhile.
BOOST_AUTO_TEST_CASE(clients_past_the_cap_are_refused_and_a_run_goes_on) {
  const ManyFiles files;
  const int crowd = files.was.rlim_max > 8000 ? 3000 : 300;
  InspectionOptions cap;
  cap.serve = 2, cap.wait = 20;
  Nodes nodes(1);
  InspectionServer server(nodes[0], cap);
  std::latch began(cap.serve);
  std::promise<void> goes_on;
  server.serve("/held", [&, held = goes_on.get_future().share()](const auto&) {
    began.count_down();
    held.wait();
    return std::string("{}");
  });
  Graph g;
  Expr n = g.input("n", DType::i64, Shape{});
  Function f = nodes.engine().compile(
      g, {n},
      {while_loop([&](Expr i) { return i < n; }, [](Expr i) { return i + 1; },
                  g.constant(std::int64_t{0}))});
  RunHandle run = f.start({Tensor::scalar(INT64_MAX)});
  const auto fired = [&] { return nodes.engine().snapshot(10s).runs.at(0).fired(); };
  const auto ask = [&](const std::string& path) {
    const int fd = dial(server.address());
    say(fd, "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
    return fd;
  };
  std::vector<int> served, all;
  for (int i = 0; i < cap.serve; ++i) served.push_back(ask("/held"));
  began.wait();
  for (int i = 0; i < crowd; ++i) all.push_back(ask("/healthz"));
  // Refused clients get their answer while no other is served: all but the last 20 are refused,
  // whichever they are.
  std::vector<pollfd> waiting;
  for (const int fd : all) waiting.push_back({fd, POLLIN, 0});
  int refused = 0, later = 0;
  while (waiting.size() > static_cast<std::size_t>(cap.wait)) {
    if (poll(waiting.data(), waiting.size(), -1) < 0) continue;
    for (const pollfd& one : waiting) {
      if (one.revents == 0) continue;
      const std::string answer = heard(one.fd);
      BOOST_TEST(answer.starts_with("HTTP/1.1 503"), answer);
      BOOST_TEST(has(answer, "come back in a second"), answer);
      ++refused;
    }
    std::erase_if(waiting, [](const pollfd& one) { return one.revents != 0; });
  }
  BOOST_TEST(refused == crowd - cap.wait);
  const std::uint64_t with_them = fired();
  BOOST_TEST(nodes[0].diagnose(1s, 10s).empty());
  BOOST_TEST(fired() > with_them);
  run.cancel();
  BOOST_TEST((run.wait().code() == Code::cancelled));
  goes_on.set_value();
  for (const pollfd& one : waiting) later += heard(one.fd).starts_with("HTTP/1.1 200");
  BOOST_TEST(later == cap.wait);
  for (const int fd : served) {
    const std::string answer = heard(fd);
    BOOST_TEST(answer.starts_with("HTTP/1.1 200"), answer);
  }
}

// A thousand clients send half a request each, and no more: a client with a whole request is served
// meanwhile.
BOOST_AUTO_TEST_CASE(a_slow_request_blocks_no_other) {
  const ManyFiles files;
  InspectionOptions options;
  options.head = 3600;
  Nodes nodes(1);
  const InspectionServer server(nodes[0], options);
  const NoSigpipe writes_fail;
  std::vector<int> slow;
  for (std::size_t i = 0; i < 1000; ++i) {
    slow.push_back(dial(server.address()));
    say(slow.back(), "GET /healthz HTT");
    if (i % 100 != 99) continue;
    httplib::Client http(server.address());
    http.set_read_timeout(60);
    for (const char* path : {"/healthz", "/api/state"}) {
      const auto answer = http.Get(path);
      BOOST_REQUIRE(answer);
      BOOST_TEST(answer->status == 200);
    }
  }
  for (std::size_t i = 0; i < slow.size(); ++i) {  // the first clients have been disconnected
    if (i + HttpAcceptor::kMostHeads >= slow.size()) {
      close(slow[i]);
      continue;
    }
    const std::string answer = heard(slow[i]);
    BOOST_TEST(answer.starts_with("HTTP/1.1 503"), answer);
  }
}

BOOST_AUTO_TEST_CASE(a_request_that_is_too_slow_is_refused) {
  InspectionOptions options;
  options.head = 20;  // in which this test says the first few words
  Nodes nodes(1);
  const InspectionServer server(nodes[0], options);
  const int half = dial(server.address());
  say(half, "GET /healthz HTT");
  const int silent = dial(server.address());
  const std::string late = heard(half);
  BOOST_TEST(late.starts_with("HTTP/1.1 408"), late);
  BOOST_TEST(heard(silent).empty());
}

// Clients read nothing of a large answer: the server drops each after two seconds, and not after
// the time for reading all of it.
BOOST_AUTO_TEST_CASE(a_slow_reader_blocks_no_other) {
  InspectionOptions two;
  two.serve = 2;
  Nodes nodes(1);
  InspectionServer server(nodes[0], two);
  std::promise<void> began;
  server.serve("/large", [&, is_first = std::make_shared<std::atomic<bool>>(true)](const auto&) {
    if (is_first->exchange(false)) began.set_value();
    return std::string(32 << 20, 'x');  // more than lies between two sockets
  });
  std::vector<int> slow;
  for (int i = 0; i < 4; ++i) {
    slow.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int bytes = 4096;
    // before it connects: the TCP window that it offers
    setsockopt(slow.back(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    connect_to(slow.back(), server.address());
    say(slow.back(), "GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
  }
  began.get_future().wait();
  httplib::Client http(server.address());
  http.set_read_timeout(120);
  const auto asked = std::chrono::steady_clock::now();
  const auto answer = http.Get("/healthz");
  const auto took = std::chrono::steady_clock::now() - asked;
  BOOST_REQUIRE(answer);
  BOOST_TEST(answer->status == 200);
  BOOST_TEST((took < 100s));  // twice two seconds, on a busy machine
  for (const int fd : slow) close(fd);
}

// Browsers take Brotli, which takes seconds for a large plan.
BOOST_AUTO_TEST_CASE(answers_are_compressed_for_other_machines_only_and_quickly) {
  Nodes nodes(1);
  for (const bool is_here : {true, false}) {
    InspectionOptions options;
    if (!is_here) options.host = "0.0.0.0", options.token = "0123456789abcdef";
    const InspectionServer server(nodes[0], options);
    for (const std::string names : {"br", "gzip, deflate, br, zstd", "GZIP;q=0", ""}) {
      const int fd = dial(server.address());
      say(fd,
          "GET /api/state HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
          "0123456789abcdef\r\naccept-Encoding:" +
              names + "\r\n\r\n");
      const std::string answer = heard(fd);
      BOOST_TEST(answer.starts_with("HTTP/1.1 200"), answer);
      BOOST_TEST(has(answer, "Content-Encoding: gzip") == (!is_here && names.size() > 10), names);
      BOOST_TEST(has(answer, "Content-Encoding: ") == (!is_here && names.size() > 10), names);
    }
  }
}

// Each range would be all of the asset once more.
BOOST_AUTO_TEST_CASE(no_request_is_answered_with_ranges) {
  Nodes nodes(1);
  const InspectionServer server(nodes[0], {});
  httplib::Client http(server.address());
  const auto whole = http.Get("/assets/main.js");
  BOOST_REQUIRE(whole);
  std::string ranges = "bytes=0-";
  for (int i = 1; i < 2'700; ++i) ranges += ",0-";
  for (const char* line :
       {"\r\nRange: ", "\r\nrANGE:", "\r\nRange: bytes=0-1\r\nRange: ", "\r\nX: y\nRange: "}) {
    const int fd = dial(server.address());
    say(fd, "GET /assets/main.js HTTP/1.1\r\nHost: x" + (line + ranges) +
                "\r\nConnection: close\r\n\r\n");
    const std::string answer = heard(fd);
    BOOST_TEST(answer.starts_with("HTTP/1.1 200"), answer.substr(0, 200));
    BOOST_TEST(answer.substr(answer.find("\r\n\r\n") + 4) == whole->body);
  }
}

// As where there is no memory for an answer.
BOOST_AUTO_TEST_CASE(an_answer_that_throws_ends_no_other) {
  const int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  BOOST_REQUIRE(bind(listening, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  BOOST_REQUIRE(getsockname(listening, reinterpret_cast<sockaddr*>(&at), &size) == 0);
  const HttpAcceptor acceptor(listening, {.serve = 1, .wait = 4, .head = 3600},
                              [](int socket, const std::string& head) {
                                if (has(head, "/none")) throw std::bad_alloc();
                                (void)!::send(socket, "here", 4, MSG_NOSIGNAL);
                              });
  const std::string address = fmt::format("http://127.0.0.1:{}", ntohs(at.sin_port));
  for (const auto& [path, answer] : {std::pair("/none", ""), std::pair("/", "here")}) {
    const int fd = dial(address);
    say(fd, fmt::format("GET {} HTTP/1.1\r\n\r\n", path));
    BOOST_TEST(heard(fd) == answer);
  }
}

// One client at a time may trace: the next need not wait until the seconds of a client that has
// disconnected are over.
BOOST_AUTO_TEST_CASE(a_trace_of_a_client_that_left_goes_to_the_next) {
  Nodes nodes(1);
  const InspectionServer server(nodes[0], {});
  httplib::Client http(server.address());
  http.set_read_timeout(120);
  const auto next = [&] {
    const auto answer = http.Get("/api/trace?seconds=1");
    BOOST_REQUIRE(answer);
    return answer->status;
  };
  int first = -1;
  do {  // until the first is the one that traces
    if (first >= 0) close(first);
    first = dial(server.address());
    say(first,
        "GET /api/trace?seconds=60 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
  } while (next() != 503);
  const auto went = std::chrono::steady_clock::now();
  close(first);
  while (next() != 200) {}
  BOOST_TEST((std::chrono::steady_clock::now() - went < 40s));
}

BOOST_AUTO_TEST_CASE(a_request_that_comes_in_pieces_is_served) {
  Nodes nodes(1);
  const InspectionServer server(nodes[0], {});
  const int fd = dial(server.address());
  const int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  for (const char c : std::string("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"))
    say(fd, std::string(1, c));
  const std::string answer = heard(fd);
  BOOST_TEST(answer.starts_with("HTTP/1.1 200"), answer);
  const int endless = dial(server.address());
  say(endless, "GET / HTTP/1.1\r\nCookie: " + std::string(32'800, 'x'));
  const std::string too_long = heard(endless);
  BOOST_TEST(too_long.starts_with("HTTP/1.1 431"), too_long);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
