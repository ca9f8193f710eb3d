// `troupe node` as processes on loopback, and this program as one more node.
#include <boost/test/unit_test.hpp>

#include <csignal>
#include <sstream>
#include <thread>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <httplib.h>
#include <nlohmann/json.hpp>

#include <troupe/cluster/node.hpp>
#include <troupe/cluster/zeromq.hpp>
#include <troupe/test/apps/node_process.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(node_process_test)

namespace {

// This program, which is listed first: its own node is `a`.
std::unique_ptr<ClusterNode> client(const std::string& join, const EngineOptions& engine = {}) {
  NodeOptions o;
  o.name = "a";
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

// Each iteration goes over all three.
std::pair<Expr, Expr> over_three(Graph& g, int iterations) {
  auto [n, s] = while_loop([=](Expr i, Expr) { return i < iterations; },
                           [&](Expr i, Expr t) {
                             Expr next = i + 1, u;
                             {
                               auto there = g.on_device("/node:b/cpu:0");
                               u = matmul(t, t) * 0.01;
                             }
                             auto there = g.on_device("/node:c/cpu:0");
                             return std::tuple{next, u + 1.0};
                           },
                           std::tuple{g.constant(0), g.ones(DType::f32, {32, 32})});
  return {n, s};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_loop_over_three_processes_and_one_that_dies, *boost::unit_test::label("stock_zmq")) {
  Folder folder_b, folder_c;
  NodeProcess b(folder_b, "b"), c(folder_c, "c", {"--join", b.address});
  auto a = client(c.address);  // hears of b there
  a->wait_for({"b", "c"}, std::chrono::seconds(60));

  Graph g;
  auto [n, s] = over_three(g, 20);
  Graph same;
  Engine alone;
  double expected = 1;
  for (int i = 0; i < 20; ++i) expected = expected * expected * 32 * 0.01 + 1;
  for (int run = 0; run < 3; ++run) {
    auto out = a->engine().run(g, {}, {n, s});
    BOOST_TEST(out[0].item<std::int32_t>() == 20);
    BOOST_TEST(out[1].at(1000) == expected, boost::test_tools::tolerance(1e-4));
  }

  Graph endless;
  auto [m, t] = over_three(endless, 1000000000);
  RunHandle run = a->engine().start(endless, {}, {t});
  c.process.interrupt(SIGKILL);
  const Status lost = run.wait();
  BOOST_TEST((lost.code() == Code::unavailable), lost.message());
  BOOST_TEST((lost.message().find("node 'c' was lost") != std::string::npos), lost.message());
  BOOST_TEST(c.process.finish().code == 128 + SIGKILL);

  Graph h;
  Expr y;
  {
    auto there = h.on_device("/node:b/cpu:0");
    y = h.ones(DType::f32, {2}) * h.random_uniform({2});
  }
  BOOST_TEST((a->engine().run(h, {}, {y})[0].shape() == Shape{2}));  // the others go on

  b.process.interrupt(SIGTERM);
  const Outcome left = b.process.finish();
  BOOST_TEST(left.code == 0, left.error);
  BOOST_TEST((left.out.find("node 'b' leaves") != std::string::npos), left.out);
}

// c has given b what b needs of it, and dies: the run goes on, over the time in which it is found to be dead.
BOOST_AUTO_TEST_CASE(a_process_that_has_done_its_part_dies, *boost::unit_test::label("stock_zmq")) {
  Folder folder_b, folder_c;
  NodeProcess b(folder_b, "b"), c(folder_c, "c", {"--join", b.address});
  auto a = client(c.address);
  a->wait_for({"b", "c"}, std::chrono::seconds(60));
  Graph g;
  Expr once;
  {
    auto d = g.on_device("/node:c/cpu:0");
    once = g.random_uniform({2}) * 0.0 + 3.0;
  }
  auto [n, t] = while_loop([](Expr i, Expr) { return i < 1000000000; },
                           [&](Expr i, Expr v) {
                             Expr next = i + 1;
                             auto d = g.on_device("/node:b/cpu:0");
                             return std::tuple{next, v * 0.5 + once * 0.5};
                           },
                           std::tuple{g.constant(0), g.ones(DType::f32, {2})});
  RunHandle run = a->engine().start(g, {}, {t});
  const auto until = [&](auto done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
    while (!done() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return done();
  };
  const auto in = [&] { return a->counters().messages_in; };
  BOOST_REQUIRE(until([&] { return in() > 1000; }));
  c.process.interrupt(SIGKILL);
  BOOST_TEST(until([&] {
    const std::vector<Member> all = a->members();
    return std::any_of(all.begin(), all.end(), [](const Member& m) { return m.name == "c" && m.state == MemberState::dead; });
  }));
  const std::uint64_t before = in();
  BOOST_TEST(until([&] { return in() > before + 1000 || run.is_done(); }));
  BOOST_TEST(!run.is_done());
  run.cancel();
  const Status status = run.wait();
  BOOST_TEST((status.code() == Code::cancelled), status.message());
}

BOOST_AUTO_TEST_CASE(placement_goes_by_what_processes_measured, *boost::unit_test::label("stock_zmq")) {
  Folder folder_b, folder_c;
  NodeProcess b(folder_b, "b"), c(folder_c, "c", {"--join", b.address});
  EngineOptions o;
  o.placement = Placement::automatic;
  auto a = client(c.address, o);
  a->wait_for({"b", "c"}, std::chrono::seconds(60));
  Graph g;
  Expr x = g.input("x", DType::f32, {64, 64}), y;
  {
    auto d = g.on_device("/node:b/cpu:0");
    y = matmul(x, x);
  }
  Function f = a->engine().compile(g, {x}, {y});
  for (int run = 0; run < 3; ++run) f({Tensor::zeros(DType::f32, {64, 64})});
  const std::string text = a->engine().compile(g, {x}, {y}).explain();
  for (const char* part : {"link a - b: ", "link a - c: ", "link b - c: ", "measured: 1 of 1 nodes", "on /node:b/cpu:0 (measured)"})
    BOOST_TEST((text.find(part) != std::string::npos), part << " is not in:\n" << text);
}

BOOST_AUTO_TEST_CASE(a_node_that_is_asked_to_end_while_it_works, *boost::unit_test::label("stock_zmq")) {
  Folder folder;
  NodeProcess b(folder, "b");
  auto a = client(b.address);
  a->wait_for({"b"}, std::chrono::seconds(60));
  Graph g;
  Expr r = while_loop([](Expr i) { return i < 1000000000; },
                      [&](Expr i) {
                        auto there = g.on_device("/node:b/cpu:0");
                        return i + 1;
                      },
                      g.constant(0));
  RunHandle run = a->engine().start(g, {}, {r});
  b.process.interrupt(SIGTERM);
  const Status status = run.wait();
  BOOST_TEST((status.message().find("node 'b'") != std::string::npos), status.message());
  BOOST_TEST(b.process.finish().code == 0);
}

BOOST_AUTO_TEST_CASE(an_address_that_is_taken_and_a_name_that_is, *boost::unit_test::label("stock_zmq")) {
  Folder folder, other;
  NodeProcess b(folder, "b");
  const Outcome taken = run(other.path(), {binary(), "node", "--name", "c", "--listen", b.address});
  BOOST_TEST(taken.code == 2, taken.error);
  BOOST_TEST((taken.error.find(b.address) != std::string::npos), taken.error);
  const Outcome same = run(other.path(), {binary(), "node", "--name", "b", "--listen", "tcp://127.0.0.1:0", "--join", b.address, "--patience", "0"});
  BOOST_TEST(same.code == 2, same.error);
}

// ---- the node as an operated thing

// Everything after `http://` on the line that says where a node listens.
std::pair<std::string, int> page_of(const std::string& line) {
  const std::string at = line.substr(line.find("http://") + 7);
  return {at.substr(0, at.find(':')), std::stoi(at.substr(at.find(':') + 1))};
}

BOOST_AUTO_TEST_CASE(a_node_says_how_it_is, *boost::unit_test::label("stock_zmq")) {
  Folder folder;
  NodeProcess b(folder, "b", {"--labels", "gpu=none,zone=x", "--http", "0"});
  const auto [host, port] = page_of(b.process.seen());
  BOOST_TEST(host == "127.0.0.1");
  const NoSigpipe writes_fail;
  httplib::Client page(host, port);
  auto health = page.Get("/healthz");
  BOOST_REQUIRE(health);
  BOOST_TEST(health->status == 200);
  auto a = client(b.address);
  a->wait_for({"b"}, std::chrono::seconds(60));
  nlohmann::json members;
  // It hears of the newcomer when the newcomer hears of it, or a little later.
  for (int i = 0; i < 1000 && members["members"].size() != 2; ++i) members = nlohmann::json::parse(page.Get("/members")->body);
  BOOST_TEST(members["node"] == "b");
  BOOST_REQUIRE(members["members"].size() == 2u);
  const auto& of_b = members["members"][1];
  BOOST_TEST(of_b["name"] == "b");
  BOOST_TEST(of_b["state"] == "alive");
  BOOST_TEST(of_b["labels"]["zone"] == "x");
  BOOST_TEST(of_b["engine"] == engine_version());
  BOOST_TEST(of_b["address"].get<std::string>().starts_with("tcp://127.0.0.1:"));
  // What is no request, or too large, harms nothing.
  BOOST_TEST(page.Get("/nothing")->status == 404);
  // (Who still writes when the answer has been given and the connection closed may see that it was reset, and no answer.)
  const auto refused = [](const httplib::Result& answer) { return !answer || answer->status >= 400; };
  BOOST_TEST(refused(page.Post("/members", std::string(1 << 20, 'x'), "text/plain")));
  BOOST_TEST(refused(page.Get("/" + std::string(100'000, 'x'))));
  httplib::Client again(host, port);
  BOOST_TEST(again.Get("/healthz")->status == 200);
  b.process.interrupt(SIGTERM);
  BOOST_TEST(b.process.finish().code == 0);
}

// What systemd hears of a service of Type=notify, through a socket that this test stands in for.
BOOST_AUTO_TEST_CASE(a_node_tells_its_service_manager, *boost::unit_test::label("stock_zmq")) {
  Folder folder;
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  const std::string path = folder / "notify";
  path.copy(at.sun_path, sizeof at.sun_path - 1);
  const int manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  BOOST_REQUIRE(bind(manager, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  auto heard = [&] {
    char text[256];
    const ssize_t n = recv(manager, text, sizeof text, 0);
    return std::string(text, static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  };
  setenv("NOTIFY_SOCKET", path.c_str(), 1);
  NodeProcess b(folder, "b");
  unsetenv("NOTIFY_SOCKET");
  BOOST_TEST(heard() == "READY=1");
  b.process.interrupt(SIGTERM);
  BOOST_TEST(heard() == "STOPPING=1");
  BOOST_TEST(b.process.finish().code == 0);
  close(manager);
}

// One that was free a moment ago.
int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof at;
  BOOST_REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&at), length) == 0);
  BOOST_REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(&at), &length) == 0);
  close(fd);
  return ntohs(at.sin_port);
}

BOOST_AUTO_TEST_CASE(a_node_that_has_found_nobody_is_not_healthy, *boost::unit_test::label("stock_zmq")) {
  const int port = free_port();
  Folder folder;
  Process lonely(folder.path(), {binary(), "node", "--listen", "tcp://127.0.0.1:0", "--name", "l", "--workers", "1", "--join", "tcp://127.0.0.1:1",
                                 "--patience", "600", "--http", std::to_string(port)});
  int status = 0;
  const NoSigpipe writes_fail;
  for (int i = 0; i < 100'000 && status == 0; ++i) {
    httplib::Client page("127.0.0.1", port);
    if (auto health = page.Get("/healthz")) status = health->status;
  }
  BOOST_TEST(status == 503);
  lonely.interrupt(SIGKILL);
  lonely.finish();
}

// The processes whose parent is this one.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> all;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    std::string text;
    std::getline(file, text);
    const auto close = text.rfind(')');
    if (close == std::string::npos) continue;
    std::istringstream rest(text.substr(close + 2));
    char state = 0;
    pid_t of = 0;
    rest >> state >> of;
    if (of == parent && state != 'Z') all.push_back(static_cast<pid_t>(std::stol(text)));
  }
  return all;
}

bool are_gone(const std::vector<pid_t>& all) {
  for (int i = 0; i < 100'000; ++i) {
    if (std::none_of(all.begin(), all.end(), [](pid_t p) { return kill(p, 0) == 0; })) return true;
    usleep(1000);
  }
  return false;
}

// A cluster of three processes, with the one that watches over them.
struct Standalone {
  Standalone() {
    BOOST_REQUIRE(process.read_until("3 nodes in this cluster\n"));
    nodes = children_of(process.pid());
    BOOST_REQUIRE(nodes.size() == 3u);
  }
  Folder folder;
  Process process{folder.path(), {binary(), "node", "--standalone", "3", "--workers", "1"}};
  std::vector<pid_t> nodes;
};

BOOST_AUTO_TEST_CASE(a_cluster_on_one_machine, *boost::unit_test::label("stock_zmq")) {
  Standalone all;
  {
    const std::string first = all.process.seen().substr(all.process.seen().find("tcp://"));
    auto a = client(first.substr(0, first.find('\n')));
    a->wait_for({"local-1", "local-2", "local-3"}, std::chrono::seconds(60));
  }
  all.process.interrupt(SIGTERM);
  const Outcome end = all.process.finish();
  BOOST_TEST(end.code == 0, end.error);
  for (const char* name : {"local-1", "local-2", "local-3"})
    BOOST_TEST((end.out.find(std::string("node '") + name + "' leaves") != std::string::npos), end.out);
  BOOST_TEST(are_gone(all.nodes));
}

BOOST_AUTO_TEST_CASE(one_that_dies_ends_the_others_with_a_clear_line, *boost::unit_test::label("stock_zmq")) {
  Standalone all;
  kill(all.nodes[1], SIGKILL);
  const Outcome end = all.process.finish();
  BOOST_TEST(end.code == 1);
  BOOST_TEST((end.error.find("was killed by signal 9; the others are ended too") != std::string::npos), end.error);
  BOOST_TEST(are_gone(all.nodes));
}

BOOST_AUTO_TEST_CASE(no_node_outlives_its_supervisor, *boost::unit_test::label("stock_zmq")) {
  Standalone all;
  all.process.interrupt(SIGKILL);
  all.process.finish();
  BOOST_TEST(are_gone(all.nodes));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
