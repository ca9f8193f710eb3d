// Not under asan and tsan: it watches processes of the binary that other suites run in one process.
// `troupe node` processes with keys, each in a network namespace of its own, under network faults:
// links that go down, packets that are lost, lines that are slow or long. This program is the
// router between them, and one more node, in a private namespace that ends with the case. A case
// that the system does not permit is skipped.
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <fstream>
#include <thread>

#include <fmt/format.h>

#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/transport/net/tcp_socket.hpp>
#include <troupe/cluster/transport/zeromq/zeromq.hpp>
#include <troupe/test/process/apart.hpp>
#include <troupe/test/process/node_process.hpp>
#include <troupe/test/support/cluster/relay.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(network_test)

namespace {

using namespace std::chrono_literals;

constexpr const char* kLoss =
    "nft add table inet t && nft add chain inet t c && nft add rule inet t c numgen random mod 100 "
    "'<' 5 counter drop";
constexpr const char* kRate = "tc qdisc add dev lo root tbf rate 20mbit burst 16k latency 100ms";
constexpr const char* kDelay = "tc qdisc add dev lo root netem delay 20ms";

/// Nodes b and c behind a link each, v_b and v_c, and this program's node a between them.
class Network {
 public:
  /// `everywhere`: they listen at all addresses of their machine.
  explicit Network(bool everywhere = false) : everywhere_(everywhere) {
    add("b", 1, {});
    add("c", 2, {"--join", address(0)});
  }
  ~Network() {
    client.reset();
    nodes_.clear();
  }
  static std::string address(int i) { return fmt::format("tcp://10.77.{}.2:7117", i + 1); }
  NodeProcess& node(int i) { return *nodes_[static_cast<std::size_t>(i)]; }
  /// The log of a node so far.
  std::string said_by(int i) const { return read_file(folders_[i] / ".stderr"); }
  /// `is_impatient`: a breaks connections early, and suspects nodes that it hears late.
  void join(const std::string& address, bool is_impatient = true) {
    NodeOptions o;
    o.name = "a";
    o.join = {address};
    o.engine.workers = 1;
    o.transport = [this, is_impatient](PeerInfo self) {
      self.address = "tcp://0.0.0.0:0";
      ZeroMqOptions options;
      options.keys = read_keys(keys_["a"]);
      if (is_impatient) options.router.heartbeat = 100ms, options.router.silence = 500ms;
      return make_zeromq_transport(std::move(self), options);
    };
    client = std::make_unique<ClusterNode>(std::move(o));
    client->wait_for({"b", "c"}, 60s);
  }
  /// Until `done`, ten times as long as it could take.
  template <class Done>
  static bool wait_until(Done done) {
    const auto end = std::chrono::steady_clock::now() + 100s;
    while (!done() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return done();
  }

  std::unique_ptr<ClusterNode> client;

 private:
  void add(const std::string& name, int number, std::vector<std::string> more) {
    shell(
        fmt::format("ip netns add {0} && ip link add v_{0} type veth peer name eth0 netns {0} && "
                    "ip addr add 10.77.{1}.1/24 dev v_{0} && ip link set v_{0} up && "
                    "ip -n {0} link set lo up && ip -n {0} addr add 10.77.{1}.2/24 dev eth0 && ip "
                    "-n {0} link set eth0 up && "
                    "ip -n {0} route add default via 10.77.{1}.1",
                    name, number));
    more.insert(more.end(), {"--keys", keys_[name]});
    nodes_.push_back(std::make_unique<NodeProcess>(
        folders_[number - 1], name, more, everywhere_ ? "tcp://0.0.0.0:7117" : address(number - 1),
        std::vector<std::string>{"/usr/sbin/ip", "netns", "exec", name}));
  }

  const bool everywhere_;
  Apart apart_;
  KeyFolders keys_{{"a", "b", "c"}};
  Folder folders_[2];
  std::vector<std::unique_ptr<NodeProcess>> nodes_;
};

/// Each iteration goes over all three; what comes out is what one engine says.
struct Loop {
  explicit Loop(int iterations, std::int64_t size = 16) : expected(1) {
    auto [n, t] = while_loop([=](Expr i, Expr) { return i < iterations; },
                             [&](Expr i, Expr x) {
                               Expr next = i + 1, y;
                               {
                                 auto there = g.on_device("/node:b/cpu:0");
                                 y = x * 0.5;
                               }
                               auto there = g.on_device("/node:c/cpu:0");
                               return std::tuple{next, y + 1.0};
                             },
                             std::tuple{g.constant(0), g.ones(DType::f32, {size, size})});
    count = n;
    sum = t;
    for (int i = 0; i < std::min(iterations, 100); ++i) expected = expected * 0.5f + 1;
    wanted = iterations;
  }
  void check(const std::vector<Tensor>& out) const {
    BOOST_TEST(out[0].item<std::int32_t>() == wanted);
    BOOST_TEST(out[1].at(0) == expected);
    BOOST_TEST(out[1].at(out[1].elements() - 1) == expected);
  }
  Graph g;
  Expr count, sum;
  float expected;
  int wanted = 0;
};

}  // namespace

// The page's own example: no node knows the address at which others reach it, and the third learns
// of the first from the second.
BOOST_AUTO_TEST_CASE(all_listen_at_all_addresses,
                     *boost::unit_test::label("stock_zmq") *
                         boost::unit_test::precondition(Permitted{"true"})) {
  Network net(true);
  net.join(net.address(1));
  Loop loop(40);
  loop.check(net.client->engine().run(loop.g, {}, {loop.count, loop.sum}));
  for (const Member& m : net.client->members())
    if (m.name != "a") BOOST_TEST(m.address == net.address(m.name == "b" ? 0 : 1));
}

BOOST_AUTO_TEST_CASE(a_link_that_goes_down_and_comes_up,
                     *boost::unit_test::label("stock_zmq") *
                         boost::unit_test::precondition(Permitted{"true"})) {
  Network net;
  net.join(net.node(1).address);
  Loop loop(20'000);  // some seconds
  RunHandle run = net.client->engine().start(loop.g, {}, {loop.count, loop.sum});
  BOOST_REQUIRE(net.wait_until([&] { return net.client->counters().messages_in > 50; }));
  const std::uint64_t before = net.client->counters().messages_in;
  // longer than a silence that is borne, and shorter than what a dead node's takes
  shell("ip link set v_b down && sleep 1 && ip link set v_b up");
  BOOST_REQUIRE(net.wait_until([&] { return net.client->counters().reconnects > 0; }));
  loop.check(run.get());
  BOOST_TEST(net.client->counters().messages_in > before);  // it was under way
  BOOST_TEST((net.client->nodes() == std::vector<std::string>{"a", "b", "c"}));
}

BOOST_AUTO_TEST_CASE(a_link_that_stays_down,
                     *boost::unit_test::label("stock_zmq") *
                         boost::unit_test::precondition(Permitted{"true"})) {
  Network net;
  net.join(net.node(1).address);
  Loop endless(1000000000);
  RunHandle run = net.client->engine().start(endless.g, {}, {endless.sum});
  BOOST_REQUIRE(net.wait_until([&] { return net.client->counters().messages_in > 50; }));
  shell("ip link set v_b down");
  const Status status = run.wait();
  BOOST_TEST((status.code() == Code::unavailable), status.message());
  BOOST_TEST((status.message().find("node 'b' was lost") != std::string::npos), status.message());
  Graph g;
  Expr y;
  {
    auto there = g.on_device("/node:c/cpu:0");
    y = g.ones(DType::f32, {2}) + 1.0;
  }
  BOOST_TEST(net.client->engine().run(g, {}, {y})[0].at(1) == 2);  // the others go on
}

// c takes no part. It holds the others for dead, comes back, and says so: a and b go on.
BOOST_AUTO_TEST_CASE(a_bystander_that_is_cut_off_and_comes_back,
                     *boost::unit_test::label("stock_zmq") *
                         boost::unit_test::precondition(Permitted{"true"})) {  // H1
  Network net;
  net.join(net.node(1).address, false);  // else a has suspected b before, which refuted it
  Graph g;
  auto [n, t] = while_loop([](Expr i, Expr) { return i < 1000000000; },
                           [&](Expr i, Expr x) {
                             Expr next = i + 1;
                             auto there = g.on_device("/node:b/cpu:0");
                             return std::tuple{next, x * 0.5};
                           },
                           std::tuple{g.constant(0), g.ones(DType::f32, {2})});
  RunHandle run = net.client->engine().start(g, {}, {t * 1.0});
  BOOST_REQUIRE(net.wait_until([&] { return net.client->counters().messages_in > 50; }));
  shell("ip link set v_c down");
  const auto state_of_c = [&] {
    for (const Member& m : net.client->members())
      if (m.name == "c") return m.state;
    return MemberState::left;
  };
  BOOST_REQUIRE(net.wait_until([&] { return state_of_c() == MemberState::dead; }));
  const auto held_dead_by_c = [&](const std::string& name) {
    return net.said_by(1).find("node '" + name + "' is dead") != std::string::npos;
  };
  BOOST_REQUIRE(net.wait_until([&] { return held_dead_by_c("a") && held_dead_by_c("b"); }));
  shell("ip link set v_c up");
  // A run over all three works when each has a session with the others: c has been heard by both.
  Loop loop(10);
  std::vector<Tensor> out;
  const auto works = [&] {
    try {
      out = net.client->engine().run(loop.g, {}, {loop.count, loop.sum});
    } catch (const Error&) {  // as long as they have not found each other again
    }
    return !out.empty() || run.is_done();
  };
  BOOST_REQUIRE(net.wait_until(works));
  const std::uint64_t before = net.client->counters().messages_in;
  BOOST_REQUIRE(net.wait_until(
      [&] { return run.is_done() || net.client->counters().messages_in > before + 200; }));
  BOOST_TEST(!run.is_done());
  run.cancel();
  const Status status = run.wait();
  BOOST_TEST((status.code() == Code::cancelled), status.message());
  BOOST_TEST(net.said_by(0).find("node 'a' is dead") == std::string::npos);
}

// This node reaches both; they do not reach each other any more, until they do.
BOOST_AUTO_TEST_CASE(two_others_that_are_cut_off_from_each_other,
                     *boost::unit_test::label("stock_zmq") *
                         boost::unit_test::precondition(Permitted{kLoss})) {
  Network net;
  net.join(net.node(1).address);
  Loop endless(1000000000), loop(40);
  Function f = net.client->engine().compile(loop.g, {}, {loop.count, loop.sum});
  loop.check(f({}));
  RunHandle run = net.client->engine().start(endless.g, {}, {endless.sum});
  BOOST_REQUIRE(net.wait_until([&] { return net.client->counters().messages_in > 200; }));
  shell(
      "nft add table inet t && nft add chain inet t c '{ type filter hook forward priority 0; }' "
      "&& nft add rule inet t c counter drop");
  const Status status = run.wait();
  BOOST_TEST((status.code() == Code::unavailable), status.message());
  const auto has = [&](const char* text) {
    return status.message().find(text) != std::string::npos;
  };
  BOOST_TEST((has("node 'b': node 'c' was lost") || has("node 'c': node 'b' was lost")),
             status.message());
  BOOST_TEST((has("awaited from it") && has("network_test.cpp")), status.message());
  shell("nft delete table inet t");
  std::vector<Tensor> out;
  const auto works = [&] {
    try {
      out = f({});
    } catch (const Error&) {  // as long as they have not found each other again
    }
    return !out.empty();
  };
  BOOST_REQUIRE(net.wait_until(works));
  loop.check(out);
}

BOOST_AUTO_TEST_CASE(packets_that_are_lost, *boost::unit_test::label("stock_zmq") *
                                                boost::unit_test::precondition(Permitted{kLoss})) {
  Network net;
  net.join(net.node(1).address);
  shell(
      "nft add table inet t && nft add chain inet t c '{ type filter hook prerouting priority 0; "
      "}' && "
      "nft add rule inet t c iifname v_b numgen random mod 100 '<' 5 counter drop");
  Loop loop(40, 256);
  loop.check(net.client->engine().run(loop.g, {}, {loop.count, loop.sum}));
  const std::string rules = shell("nft list table inet t");
  BOOST_TEST(rules.find("counter packets ") != std::string::npos, rules);
  BOOST_TEST(rules.find("counter packets 0 ") == std::string::npos, rules);  // some were
}

BOOST_AUTO_TEST_CASE(a_line_that_is_slow, *boost::unit_test::label("stock_zmq") *
                                              boost::unit_test::precondition(Permitted{kRate})) {
  Network net;
  net.join(net.node(1).address);
  shell("tc qdisc add dev v_b root tbf rate 20mbit burst 16k latency 100ms");
  Loop loop(6, 256);
  loop.check(net.client->engine().run(loop.g, {}, {loop.count, loop.sum}));
  const std::string queue = shell("tc -s qdisc show dev v_b");
  BOOST_TEST(queue.find("overlimits 0 ") == std::string::npos, queue);  // the rate was reached
}

BOOST_AUTO_TEST_CASE(a_line_that_is_long_by_a_relay,
                     *boost::unit_test::label("stock_zmq") *
                         boost::unit_test::precondition(Permitted{"true"})) {
  Network net;
  Relay relay(net.node(0).address);
  relay.delay(20ms);
  net.join(relay.address());
  Loop loop(10);
  loop.check(net.client->engine().run(loop.g, {}, {loop.count, loop.sum}));
  BOOST_TEST(relay.delayed_bytes() > 1000u);
  net.client.reset();  // before the relay goes
}

BOOST_AUTO_TEST_CASE(a_line_that_is_long_by_netem,
                     *boost::unit_test::label("stock_zmq") *
                         boost::unit_test::precondition(Permitted{kDelay})) {
  Network net;
  net.join(net.node(1).address);
  shell("tc qdisc add dev v_b root netem delay 20ms 5ms loss 1%");
  Loop loop(10);
  loop.check(net.client->engine().run(loop.g, {}, {loop.count, loop.sum}));
  // All that went to b meanwhile went through it: how long it keeps a packet is its own line's to
  // say.
  const std::string queue = shell("tc -s qdisc show dev v_b");
  BOOST_TEST(
      (queue.starts_with("qdisc netem ") && queue.find(" delay 20") < queue.find(" loss 1%") &&
       queue.find(" loss 1%") < queue.find('\n')),
      queue);
  BOOST_TEST((queue.find(" Sent ") != std::string::npos &&
              queue.find(" Sent 0 bytes") == std::string::npos),
             queue);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
