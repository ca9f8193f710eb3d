// Not under asan and tsan: it takes all descriptors, of which UBSan needs one.
// A process without free file descriptors: its runs go on, and its inspection server does not spin.
// The server closes connections of slow clients to serve others, and answers every client once
// there are descriptors again.
#include <boost/test/unit_test.hpp>

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <troupe/cluster/inspect/inspection_server.hpp>
#include <troupe/test/process/connection.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(descriptors_test)

namespace {

using namespace std::chrono_literals;

/// All that the process may have, for as long as it is there.
class UsedUp {
 public:
  UsedUp() {
    getrlimit(RLIMIT_NOFILE, &was_);
    const int next = dup(STDIN_FILENO);
    BOOST_REQUIRE(next >= 0);
    held_.push_back(next);
    const rlimit few{std::min<rlim_t>(was_.rlim_cur, static_cast<rlim_t>(next) + 64),
                     was_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    for (int fd; (fd = dup(STDIN_FILENO)) >= 0;) held_.push_back(fd);
    BOOST_REQUIRE(errno == EMFILE);
  }
  ~UsedUp() {
    for (const int fd : held_) close(fd);
    setrlimit(RLIMIT_NOFILE, &was_);
  }

 private:
  rlimit was_{};
  std::vector<int> held_;
};

constexpr const char* kRequest = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";

// The kernel's backlog accepts the connection; the server does not.
void connect_and_say(int fd, const std::string& url, const std::string& text) {
  connect_to(fd, url);
  say(fd, text);
}

bool has_answer(int fd, int ms) {
  pollfd one{fd, POLLIN, 0};
  return poll(&one, 1, ms) == 1;
}

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

std::vector<int> sockets(int n) {
  std::vector<int> all;
  for (int i = 0; i < n; ++i) all.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(process_without_descriptors_recovers_when_some_are_free) {
  Nodes nodes(1);
  const InspectionServer server(nodes[0], {});
  Graph g;
  Expr n = g.input("n", DType::i64, Shape{});
  Function f = nodes.engine().compile(
      g, {n},
      {while_loop([&](Expr i) { return i < n; }, [](Expr i) { return i + 1; },
                  g.constant(std::int64_t{0}))});
  std::vector<int> asking = sockets(10);
  {
    const UsedUp all;
    for (const int fd : asking) connect_and_say(fd, server.address(), kRequest);
    const double before = cpu_seconds();
    BOOST_TEST(!has_answer(asking[0], 1000));  // a second in which no client has anything to do
    BOOST_TEST(cpu_seconds() - before < 0.5);
    RunHandle run = f.start({Tensor::scalar(INT64_MAX)});
    const auto fired = [&] { return nodes.engine().snapshot(10s).runs.at(0).fired(); };
    const std::uint64_t first = fired();
    const auto began = std::chrono::steady_clock::now();
    while (fired() == first && std::chrono::steady_clock::now() - began < 60s) {}
    BOOST_TEST(fired() > first);
    run.cancel();
    BOOST_TEST((run.wait().code() == Code::cancelled));
    BOOST_TEST(f({Tensor::scalar(std::int64_t{1000})})[0].item<std::int64_t>() == 1000);
  }
  for (const int fd : asking) {
    BOOST_REQUIRE(has_answer(fd, 60'000));
    const std::string answer = heard(fd);
    BOOST_TEST(answer.starts_with("HTTP/1.1 200"), answer);
  }
}

BOOST_AUTO_TEST_CASE(a_slow_client_yields_its_descriptor_to_a_new_one) {
  InspectionOptions options;
  options.head = 3600;
  Nodes nodes(1);
  const InspectionServer server(nodes[0], options);
  const std::vector<int> slow = sockets(4), asking = sockets(3);
  for (const int fd : slow) connect_and_say(fd, server.address(), "GET /healthz HTT");
  const std::vector<int> last = sockets(1);
  connect_and_say(last[0], server.address(), kRequest);
  BOOST_TEST(heard(last[0]).starts_with("HTTP/1.1 200"));  // so those before are there, too
  const UsedUp all;
  for (const int fd : asking) {
    connect_and_say(fd, server.address(), kRequest);
    BOOST_REQUIRE(has_answer(fd, 60'000));
    char answer[16] = {};
    BOOST_TEST(::read(fd, answer, 12) == 12);  // and stays open: the next client needs one more
    BOOST_TEST(std::string(answer) == "HTTP/1.1 200");
  }
  for (const int fd : asking) close(fd);
  BOOST_REQUIRE(has_answer(slow[0], 60'000));
  BOOST_TEST(heard(slow[0]).starts_with("HTTP/1.1 503"));
  for (std::size_t i = 1; i < slow.size(); ++i) close(slow[i]);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
