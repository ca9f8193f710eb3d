// Not under tsan: its processes run on ZeroMQ, which is not instrumented.
// A node as its operator sees it: failures, flight records, health, the service manager.
#include <boost/test/unit_test.hpp>

#include <csignal>

#include <sys/socket.h>
#include <sys/un.h>

#include <httplib.h>
#include <nlohmann/json.hpp>

#include <troupe/test/process/client.hpp>
#include <troupe/test/process/node_process.hpp>
#include <troupe/test/support/port.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(node_operation_test)

// The error on the node where it happened is reported to the client that asked on another; and the
// next run succeeds.
BOOST_AUTO_TEST_CASE(a_failure_on_another_node_names_it_and_all_go_on,
                     *boost::unit_test::label("stock_zmq")) {
  Folder folder_b, folder_c;
  NodeProcess b(folder_b, "b"), c(folder_c, "c", {"--join", b.address});
  auto a = first_client(c.address);
  a->wait_for({"b", "c"}, std::chrono::seconds(60));
  Graph g;
  Expr first = g.input("first", DType::i32, Shape{});
  int line = 0;
  auto [n, sum] = while_loop(
      [](Expr i, Expr) { return i < 5; },
      [&](Expr i, Expr s) {
        Expr next = i + 1, taken;
        {
          auto there = g.on_device("/node:b/cpu:0");
          line = __LINE__ + 2;
          taken = g.named(
              gather(g.constant(Tensor::of<float>({1, 2, 4, 8, 16, 32})), reshape(first + i, {1})),
              "take");
        }
        auto there = g.on_device("/node:c/cpu:0");
        return std::tuple{next, s + taken};
      },
      std::tuple{g.constant(0), g.zeros(DType::f32, {1})}, {.name = "sums"});
  Function f = a->engine().compile(g, {first}, {sum});
  const auto from = [&](int index) { return f({Tensor::scalar(index)})[0].at(0); };
  BOOST_TEST(from(0) == 31);
  for (int round = 0; round < 2; ++round) {
    const std::string why = refusal([&] { from(2); }, Code::out_of_range);
    for (const std::string& part : {std::string("node 'b': "), std::string("Gather 'sums/take'"),
                                    "node_operation_test.cpp:" + std::to_string(line),
                                    std::string("in iteration 4 of loop 'sums")})
      BOOST_TEST((why.find(part) != std::string::npos), part << " is not in: " << why);
    BOOST_TEST(from(1) == 62);
  }
  Graph other;
  Expr y;
  {
    auto there = other.on_device("/node:b/cpu:0");
    y = matmul(other.ones(DType::f32, {8, 8}), other.ones(DType::f32, {8, 8}));
  }
  BOOST_TEST(a->engine().run(other, {}, {y})[0].at(0) == 8);
  BOOST_TEST((a->nodes() == std::vector<std::string>{"a", "b", "c"}));
}

// It is kept without an option: in the state folder of a service, or of this user.
BOOST_AUTO_TEST_CASE(node_keeps_flight_records_of_failures_by_default,
                     *boost::unit_test::label("stock_zmq")) {
  Folder folder;
  const std::string home = "HOME=" + folder / "home", xdg = "XDG_STATE_HOME=" + folder / "xdg",
                    service = "STATE_DIRECTORY=" + folder / "service" + ":/nowhere";
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"-u", "STATE_DIRECTORY", "-u", "XDG_STATE_HOME", home}, "home/.local/state/troupe/flight"},
      {{"-u", "STATE_DIRECTORY", xdg, home}, "xdg/troupe/flight"},
      {{home, xdg, service}, "service/flight"}};
  for (const auto& [environment, where] : cases) {
    std::vector<std::string> before{"/usr/bin/env"};
    before.insert(before.end(), environment.begin(), environment.end());
    NodeProcess b(folder, "b", {}, "tcp://127.0.0.1:0", before);
    auto a = first_client(b.address);
    a->wait_for({"b"}, std::chrono::seconds(60));
    Graph g;
    Expr index = g.input("index", DType::i64, Shape{1});
    auto there = g.on_device("/node:b/cpu:0");
    Expr y = gather(g.constant(Tensor::of<float>({1, 2, 3})), index);
    Graph alone;
    // a's first run, which b does not hear of
    a->engine().run(alone, {}, {alone.constant(1.f) + 1.0});
    refusal(
        [&] {
          a->engine().run(g, {{index, Tensor::of<std::int64_t>({7})}}, {y});
        },
        Code::out_of_range);
    const std::string file = folder / where + "/b@a-2.flight.json";
    for (int i = 0; i < 100'000 && !fs::exists(file); ++i) usleep(1000);
    b.process.interrupt(SIGTERM);
    const Outcome end = b.process.finish();
    BOOST_REQUIRE_MESSAGE(fs::exists(file), file << " is not there: " << end.error);
    const auto other = nlohmann::json::parse(read_file(file))["otherData"];
    BOOST_TEST(other["run"] == "a/2");
    BOOST_TEST(other["error"].get<std::string>().find("Gather") != std::string::npos);
    BOOST_TEST(end.error.find("'a/2'") != std::string::npos, end.error);
    BOOST_TEST(end.error.find("are in '" + file + "'") != std::string::npos, end.error);
    BOOST_TEST((fs::status(folder / where).permissions() == fs::perms::owner_all));
  }
}

BOOST_AUTO_TEST_CASE(a_node_without_a_writable_folder_warns_once_and_works,
                     *boost::unit_test::label("stock_zmq")) {
  Folder folder;
  write_file(folder / "file", "no folder");
  for (const bool is_wanted : {true, false}) {
    NodeProcess b(
        folder, "b",
        is_wanted ? std::vector<std::string>{} : std::vector<std::string>{"--flight", "none"},
        "tcp://127.0.0.1:0", {"/usr/bin/env", "STATE_DIRECTORY=" + folder / "file"});
    b.process.interrupt(SIGTERM);
    const Outcome end = b.process.finish();
    BOOST_TEST(end.code == 0, end.error);
    const auto first = end.error.find("flight records cannot be written to '" +
                                      folder / "file/flight' (Not a directory)");
    BOOST_TEST((first != std::string::npos) == is_wanted, end.error);
    if (is_wanted)
      BOOST_TEST(end.error.find("flight records cannot", first + 40) == std::string::npos,
                 end.error);
  }
}

// Everything after `http://` on the line that says where a node listens.
std::pair<std::string, int> page_of(const std::string& line) {
  const std::string at = line.substr(line.find("http://") + 7);
  return {at.substr(0, at.find(':')), std::stoi(at.substr(at.find(':') + 1))};
}

BOOST_AUTO_TEST_CASE(a_node_reports_its_health, *boost::unit_test::label("stock_zmq")) {
  Folder folder;
  NodeProcess b(folder, "b", {"--labels", "gpu=none,zone=x", "--http", "0"});
  const auto [host, port] = page_of(b.process.seen());
  BOOST_TEST(host == "127.0.0.1");
  const NoSigpipe writes_fail;
  httplib::Client page(host, port);
  auto health = page.Get("/healthz");
  BOOST_REQUIRE(health);
  BOOST_TEST(health->status == 200);
  auto a = first_client(b.address);
  a->wait_for({"b"}, std::chrono::seconds(60));
  nlohmann::json members;
  // It hears of the newcomer when the newcomer hears of it, or a little later.
  for (const auto began = std::chrono::steady_clock::now();
       members["members"].size() != 2 &&
       std::chrono::steady_clock::now() - began < std::chrono::seconds(60);)
    if (const auto said = page.Get("/members")) members = nlohmann::json::parse(said->body);
  BOOST_TEST(members["node"] == "b");
  BOOST_REQUIRE(members["members"].size() == 2u);
  const auto& of_b = members["members"][1];
  BOOST_TEST(of_b["name"] == "b");
  BOOST_TEST(of_b["state"] == "alive");
  BOOST_TEST(of_b["labels"]["zone"] == "x");
  BOOST_TEST(of_b["engine"] == engine_version());
  BOOST_TEST(of_b["address"].get<std::string>().starts_with("tcp://127.0.0.1:"));
  // An invalid or oversized request harms nothing.
  BOOST_TEST(page.Get("/nothing")->status == 404);
  // (A client that is still sending when the connection closes after the answer may see a reset,
  // and no answer.)
  const auto refused = [](const httplib::Result& answer) {
    return !answer || answer->status >= 400;
  };
  BOOST_TEST(refused(page.Post("/members", std::string(1 << 20, 'x'), "text/plain")));
  BOOST_TEST(refused(page.Get("/" + std::string(100'000, 'x'))));
  httplib::Client again(host, port);
  BOOST_TEST(again.Get("/healthz")->status == 200);
  b.process.interrupt(SIGTERM);
  BOOST_TEST(b.process.finish().code == 0);
}

// The notifications that systemd receives from a service of Type=notify, through a socket that this
// test stands in for.
BOOST_AUTO_TEST_CASE(a_node_notifies_its_service_manager, *boost::unit_test::label("stock_zmq")) {
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

BOOST_AUTO_TEST_CASE(a_node_without_peers_is_not_healthy, *boost::unit_test::label("stock_zmq")) {
  const OwnPort port;
  Folder folder;
  Process lonely(folder.path(), {binary(), "node", "--listen", "tcp://127.0.0.1:0", "--name", "l",
                                 "--workers", "1", "--join", "tcp://127.0.0.1:1", "--patience",
                                 "600", "--http", std::to_string(port.number())});
  int status = 0;
  const NoSigpipe writes_fail;
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
       status == 0 && std::chrono::steady_clock::now() < end;) {
    httplib::Client page("127.0.0.1", port.number());
    if (auto health = page.Get("/healthz")) status = health->status;
  }
  BOOST_TEST(status == 503);
  // It is asked to end while it still asks for the node that it is to join.
  lonely.interrupt(SIGTERM);
  const Outcome end = lonely.finish();
  BOOST_TEST(end.code == 0, end.error);
  BOOST_TEST(end.out.empty(), end.out);  // it has never been there
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
