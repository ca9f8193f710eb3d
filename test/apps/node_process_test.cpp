// `troupe node` as processes on loopback, and this program as one more node.
#include <boost/test/unit_test.hpp>

#include <troupe/cluster/node.hpp>
#include <troupe/cluster/zeromq.hpp>
#include <troupe/test/apps/node_process.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {
namespace {

// This program, which is listed first: its own node is `a`.
std::unique_ptr<ClusterNode> client(const std::string& join) {
  NodeOptions o;
  o.name = "a";
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

BOOST_AUTO_TEST_SUITE(node_process_test)

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

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
