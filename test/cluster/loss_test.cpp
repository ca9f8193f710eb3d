// What becomes of runs when the network or a node fails, in a simulation that a seed decides.
#include <boost/test/unit_test.hpp>

#include <troupe/test/cluster/nodes.hpp>
#include <troupe/test/controlflow/everywhere.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {
namespace {

const std::string kB = "/node:b/cpu:0", kC = "/node:c/cpu:0";

EngineOptions stepped(std::uint64_t seed) {
  EngineOptions o;
  o.deterministic = true;
  o.seed = seed;
  o.granularity = Granularity::partition;
  return o;
}

// Each iteration goes over three nodes.
Function round_trip(Nodes& nodes, Graph& g, int iterations) {
  auto [n, t] = while_loop([=](Expr i, Expr) { return i < iterations; },
                           [&](Expr i, Expr v) {
                             Expr next = i + 1, u;
                             {
                               auto d = g.on_device(kB);
                               u = v * 0.5;
                             }
                             auto d = g.on_device(kC);
                             return std::tuple{next, u + 1.0};
                           },
                           std::tuple{g.constant(0), g.ones(DType::f32, {2})});
  return nodes.engine().compile(g, {}, {t * 1.0});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(loss_test)

// A run ends: as it should, or saying which node was lost; whatever happened, no step more than it takes to find out.
BOOST_AUTO_TEST_CASE(a_run_ends_whenever_a_node_is_killed) {
  int lost = 0, done = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Nodes nodes(3, stepped(seed), Between::simulation);
    Graph g;
    Function f = round_trip(nodes, g, 30);
    RunHandle run = f.start({});
    const std::uint64_t until = 20 * seed;  // from before it begins on the others to after it has ended
    for (std::uint64_t n = 0; n < until && !run.is_done(); ++n) nodes.step();
    nodes.network().kill(seed % 2 ? "b" : "c");
    const Status status = run.wait();
    if (status.ok()) {
      ++done;
      continue;
    }
    ++lost;
    BOOST_TEST((status.code() == Code::unavailable), "seed " << seed << ": " << status.message());
    BOOST_TEST(says(status.message(), {seed % 2 ? "node 'b'" : "node 'c'", "was lost"}));
    Graph h;
    compare(nodes.engine().run(h, {}, {h.constant(2.f) * h.ones(DType::f32, {2})}), {{2, 2}}, "goes on");
  }
  BOOST_TEST(lost > 0);
}

// Connections that break lose nothing: the transport repeats, and a run does not notice.
BOOST_AUTO_TEST_CASE(a_run_survives_broken_connections) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Nodes nodes(3, stepped(seed), Between::simulation);
    Graph g;
    Function f = round_trip(nodes, g, 20);
    double expected = 1;
    for (int i = 0; i < 20; ++i) expected = expected * 0.5 + 1.0;
    RunHandle run = f.start({});
    for (int n = 0; !run.is_done(); ++n) {
      nodes.step();
      if (n % 400 == 200) nodes.network().break_connections(n % 800 == 200 ? "b" : "a");
    }
    compare(run.get(), {{expected, expected}}, "seed " + std::to_string(seed));
  }
}

BOOST_AUTO_TEST_CASE(an_error_reaches_the_owner_and_ends_the_others) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Nodes nodes(3, stepped(seed), Between::simulation);
    Graph g;
    Expr table = g.constant(Tensor::of<float>({1, 2, 3}));
    auto [n, t] = while_loop([](Expr i, Expr) { return i < 1000; },
                             [&](Expr i, Expr v) {
                               Expr next = i + 1, u;
                               {
                                 auto d = g.on_device(kB);
                                 u = gather(table, reshape(i, {1}));
                               }
                               auto d = g.on_device(kC);
                               return std::tuple{next, u + v};
                             },
                             std::tuple{g.constant(0), g.zeros(DType::f32, {1})});
    Function f = nodes.engine().compile(g, {}, {t * 1.0});
    for (int round = 0; round < 2; ++round) {
      const Status status = f.start({}).wait();
      BOOST_TEST((status.code() == Code::out_of_range), "seed " << seed << ": " << status.message());
      BOOST_TEST(says(status.message(), {"node 'b'", "Gather", "loss_test.cpp"}));
    }
  }
}

// Cancelled again and again, at any moment: what comes late for a run that is over is dropped, and the next one is right.
BOOST_AUTO_TEST_CASE(late_tokens_are_dropped) {
  std::uint64_t late = 0, early = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Nodes nodes(3, stepped(seed), Between::simulation);
    Graph g;
    Function f = round_trip(nodes, g, 10);
    for (std::uint64_t round = 0; round < 6; ++round) {
      RunHandle run = f.start({});
      for (std::uint64_t n = 0; n < (round == 0 ? 0 : 37 * round + seed) && !run.is_done(); ++n) nodes.step();
      run.cancel();
      run.wait();
    }
    double expected = 1;
    for (int i = 0; i < 10; ++i) expected = expected * 0.5 + 1.0;
    compare(f({}), {{expected, expected}}, "seed " + std::to_string(seed));
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      late += nodes[i].run_counters().late;
      early += nodes[i].run_counters().early;
    }
  }
  BOOST_TEST(late > 0u);   // seen to happen
  BOOST_TEST(early > 0u);  // and so were messages that overtook the beginning of their run
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
