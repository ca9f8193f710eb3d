// Not under tsan: its processes run on ZeroMQ, which is not instrumented.
// Faults that operators meet, on real processes: peers that were stopped or killed, failures that
// are asked about later, runs and nodes that are to end.
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <csignal>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/transport/zeromq/zeromq.hpp>
#include <troupe/test/process/node_process.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(faults_test)

namespace {

using namespace std::chrono_literals;
using json = nlohmann::json;

/// This program as node a; `router`: of its transport.
std::unique_ptr<ClusterNode> joined(const std::string& join, RouterOptions router = {}) {
  NodeOptions o;
  o.name = "a";
  o.join = {join};
  o.transport = [router](PeerInfo self) {
    self.address = "tcp://127.0.0.1:0";
    ZeroMqOptions tcp;
    tcp.router = router;
    return make_zeromq_transport(std::move(self), tcp);
  };
  return std::make_unique<ClusterNode>(std::move(o));
}

/// A loop that goes on until it is ended; each iteration goes over all of these nodes.
struct Endless {
  explicit Endless(const std::vector<std::string>& nodes) {
    auto [n, t] = while_loop([](Expr i, Expr) { return i < 1'000'000'000; },
                             [&](Expr i, Expr v) {
                               Expr next = i + 1, u = v;
                               for (const std::string& node : nodes) {
                                 auto there = g.on_device("/node:" + node + "/cpu:0");
                                 u = u * 0.5 + 1.0;
                               }
                               return std::tuple{next, u};
                             },
                             std::tuple{g.constant(0), g.ones(DType::f32, {2})});
    last = t * 1.0;
  }
  Graph g;
  Expr last;
};

template <class Done>
bool until(Done done) {
  const auto end = std::chrono::steady_clock::now() + 100s;
  while (!done() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return done();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string http_of(const NodeProcess& node) {
  const std::string& said = node.process.seen();
  const std::size_t at = said.find("http://");
  return said.substr(at, said.find('\n', at) - at);
}

}  // namespace

// Ten times less than what it would wait for a peer that takes what is left of it.
BOOST_AUTO_TEST_CASE(a_node_ends_soon_after_its_peer_was_stopped_or_killed,
                     *boost::unit_test::label("stock_zmq")) {  // H5
  for (const int signal : {SIGSTOP, SIGKILL}) {
    Folder folder;
    NodeProcess b(folder, "b");
    RouterOptions patient;
    patient.drain = 1000s;
    auto a = joined(b.address, patient);
    a->wait_for({"b"}, 60s);
    b.process.interrupt(signal);
    const auto began = std::chrono::steady_clock::now();
    a.reset();
    BOOST_TEST((std::chrono::steady_clock::now() - began < 100s));
    b.process.interrupt(SIGCONT);
  }
}

BOOST_AUTO_TEST_CASE(survivor_reports_a_failed_run_after_its_program_has_left,
                     *boost::unit_test::label("stock_zmq")) {  // H8
  Folder folder_b, folder_c, folder_d, folder;
  NodeProcess b(folder_b, "b", {"--http", "0", "--flight", folder.path()}),
      c(folder_c, "c", {"--join", b.address}),
      d(folder_d, "d", {"--join", b.address, "--http", "0"});
  {
    auto a = joined(b.address);
    a->wait_for({"b", "c", "d"}, 60s);
    Endless loop({"b", "c", "d"});
    RunHandle run = a->engine().start(loop.g, {}, {loop.last});
    BOOST_REQUIRE(until([&] { return a->counters().messages_in > 50; }));
    c.process.interrupt(SIGKILL);
    BOOST_TEST((run.wait().code() == Code::unavailable));
  }
  const auto ask_node = [&](const NodeProcess& node, std::vector<std::string> verb) {
    std::vector<std::string> all{binary()};
    all.insert(all.end(), verb.begin(), verb.end());
    all.insert(all.end(), {"--node", http_of(node), "--patience", "60"});
    return run(folder.path(), all);
  };
  const auto ask = [&](std::vector<std::string> verb) { return ask_node(b, std::move(verb)); };
  json error;
  BOOST_REQUIRE(until([&] {
    const json state = json::parse(ask({"ps", "--json"}).out, nullptr, false);
    if (state.is_discarded() || state["errors"].empty()) return false;
    for (const json& e : state["errors"])
      if (e["node"] == "b") error = e;
    return !error.is_null() && !error["flight"].get<std::string>().empty();
  }));
  BOOST_TEST(has(error["text"], "node 'c' was lost"), error.dump());
  BOOST_TEST(has(error["how"], "from its last save"), error.dump());
  BOOST_TEST(error["code"] == "unavailable");
  BOOST_TEST(fs::exists(error["flight"].get<std::string>()), error.dump());
  const std::string id = error["run"];
  const Outcome ps = ask({"ps"});
  for (const std::string& part :
       {std::string("FAILED"), id, std::string("node 'c' was lost"), "to go on after " + id + ": ",
        "flight record: " + error["flight"].get<std::string>() + " on node b"})
    BOOST_TEST(has(ps.out, part), part << " is not in " << ps.out);
  const Outcome report = ask({"report", id});
  BOOST_TEST(report.code == 0, report.error);
  for (const std::string& part :
       {"Run " + id + " has failed", std::string("node 'c' was lost"),
        std::string("from its last save"), error["flight"].get<std::string>()})
    BOOST_TEST(has(report.out, part), part << " is not in " << report.out);
  // Each survivor tells of it, b's record of the time before it too.
  b.process.interrupt(SIGKILL);
  BOOST_REQUIRE(until([&] { return has(ask_node(d, {"ps"}).out, "to go on after " + id + ": "); }));
  const Outcome of_d = ask_node(d, {"ps"});
  BOOST_TEST(has(of_d.out, "node 'c' was lost"), of_d.out);
}

BOOST_AUTO_TEST_CASE(a_time_out_ends_a_run_beside_a_stopped_node,
                     *boost::unit_test::label("stock_zmq")) {  // H3
  Folder folder;
  NodeProcess b(folder, "b");
  auto a = joined(b.address);
  a->wait_for({"b"}, 60s);
  Endless loop({"b"});
  Function f = a->engine().compile(loop.g, {}, {loop.last});
  BOOST_TEST((f.start({}, {.timeout = 200ms}).wait().code() == Code::deadline_exceeded));
  b.process.interrupt(SIGSTOP);
  for (const auto timeout : {10ms, 50ms, 200ms}) {
    const Status status = f.start({}, {.timeout = timeout}).wait();
    BOOST_TEST((status.code() == Code::deadline_exceeded), status.message());
  }
  b.process.interrupt(SIGCONT);
}

BOOST_AUTO_TEST_CASE(a_node_joins_one_that_starts_after_it,
                     *boost::unit_test::label("stock_zmq")) {  // H4
  Folder first, folder;
  std::string address;
  {
    NodeProcess b(first, "b");
    address = b.address;
    b.process.interrupt(SIGKILL);
    b.process.finish();
  }
  auto a = joined(address);  // no process listens there now
  BOOST_TEST(!a->has_joined());
  NodeProcess b(folder, "b", {}, address);
  a->wait_for({"b"}, 100s);
  BOOST_TEST(a->has_joined());
}

// By default a node is dead 1.5 s after it is suspected.
BOOST_AUTO_TEST_CASE(a_node_suspects_others_for_the_time_it_was_given,
                     *boost::unit_test::label("stock_zmq")) {
  Folder folder_b, folder_d, folder;
  NodeProcess b(folder_b, "b", {"--suspect-after", "3600", "--http", "0"}),
      d(folder_d, "d", {"--suspect-after", "3600", "--join", b.address});
  const auto state_of_d = [&] {
    const json state = json::parse(
        run(folder.path(), {binary(), "ps", "--json", "--node", http_of(b), "--patience", "60"})
            .out,
        nullptr, false);
    if (!state.is_discarded())
      for (const json& n : state["nodes"])
        if (n["name"] == "d") return n["state"].get<std::string>();
    return std::string("unknown");
  };
  BOOST_REQUIRE(until([&] { return state_of_d() == "alive"; }));
  d.process.interrupt(SIGKILL);
  BOOST_REQUIRE(until([&] { return state_of_d() == "suspect"; }));
  const auto end = std::chrono::steady_clock::now() + 4s;
  while (std::chrono::steady_clock::now() < end) BOOST_TEST(state_of_d() == "suspect");
}

BOOST_AUTO_TEST_CASE(a_run_is_cancelled_from_a_shell, *boost::unit_test::label("stock_zmq")) {
  Folder folder_b, folder_c, folder;
  NodeProcess b(folder_b, "b"), c(folder_c, "c", {"--join", b.address});
  auto a = joined(b.address);
  a->wait_for({"b", "c"}, 60s);
  Endless loop({"b"});
  RunHandle handle = a->engine().start(loop.g, {}, {loop.last});
  const auto cancel = [&](const std::string& id, const std::string& join) {
    return run(folder.path(), {binary(), "cancel", id, "--join", join});
  };
  const Outcome unknown = cancel("a/4711", c.address);
  BOOST_TEST(unknown.code == 1);
  BOOST_TEST(has(unknown.error, "there is no run 'a/4711'; under way are a/"), unknown.error);
  const Outcome no_such_node = cancel("x/1", c.address);
  BOOST_TEST(no_such_node.code == 1);
  BOOST_TEST(has(no_such_node.error, "there is no node 'x' in this cluster; there are "),
             no_such_node.error);
  std::string id = unknown.error.substr(unknown.error.find("are a/") + 4);
  id = id.substr(0, id.find_first_of(",\n"));
  const Outcome done = cancel(id, c.address);
  BOOST_TEST(done.code == 0, done.error);
  BOOST_TEST(done.out == "run " + id + " is cancelled\n");
  const Status status = handle.wait();
  BOOST_TEST((status.code() == Code::cancelled));
  BOOST_TEST(has(status.message(), "an operator has cancelled the run"), status.message());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
