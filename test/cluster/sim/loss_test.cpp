// Not under tsan: one thread steps the simulation.
// Runs when the network or a node fails, in a simulation that a seed decides.
#include <boost/test/unit_test.hpp>

#include <functional>

#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(loss_test)

namespace {

const std::string kB = "/node:b/cpu:0", kC = "/node:c/cpu:0";

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

// Its sums are on one node, what is taken off on another, where it is called too.
GraphFunction<Expr(Expr)> fibonacci_over(Graph& g, const std::string& sums,
                                         const std::string& less) {
  const ValueSpec kCount{DType::i64, Shape{}};
  GraphFunction<Expr(Expr)> fibonacci(g, "fibonacci", {kCount}, {kCount});
  fibonacci.define([&](Expr n) {
    return cond(
        n < 2, [&] { return n; },
        [&] {
          auto [a, b] = [&] {
            auto d = g.on_device(less);
            return std::tuple{n - 1, n - 2};
          }();
          Expr x = fibonacci(a), y = fibonacci(b);
          auto d = g.on_device(sums);
          return x + y;
        });
  });
  return fibonacci;
}

// A run ends: as it should, or saying which node was lost; whatever happened, no step more than it
// takes to find out.
void ends_whenever_a_node_is_killed(const std::function<Function(Nodes&, Graph&)>& compiled) {
  int lost = 0, done = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Nodes nodes(3, stepped_partitions(seed), Between::simulation);
    Graph g;
    Function f = compiled(nodes, g);
    RunHandle run = f.start({});
    // from before it begins on the others to after it has ended
    const std::uint64_t until = 20 * seed;
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
    compare(nodes.engine().run(h, {}, {h.constant(2.f) * h.ones(DType::f32, {2})}), {{2, 2}},
            "goes on");
  }
  BOOST_TEST(lost > 0);
  BOOST_TEST_MESSAGE(lost << " lost, " << done << " done");
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_run_ends_whenever_a_node_is_killed, *boost::unit_test::label("one_thread")) {
  ends_whenever_a_node_is_killed([](Nodes& nodes, Graph& g) { return round_trip(nodes, g, 30); });
}

// So does one of calls inside calls, whose parts are on three nodes.
BOOST_AUTO_TEST_CASE(a_run_of_calls_ends_whenever_a_node_is_killed,
                     *boost::unit_test::label("one_thread")) {
  ends_whenever_a_node_is_killed([](Nodes& nodes, Graph& g) {
    return nodes.engine().compile(g, {}, {fibonacci_over(g, kB, kC)(7)});
  });
}

BOOST_AUTO_TEST_CASE(calls_survive_broken_connections) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Nodes nodes(3, stepped_partitions(seed), Between::simulation);
    Graph g;
    Function f = nodes.engine().compile(g, {}, {fibonacci_over(g, kB, kC)(8)});
    std::vector<RunHandle> runs;
    for (int r = 0; r < 3; ++r) runs.push_back(f.start({}));
    for (int n = 0; !runs[0].is_done() || !runs[1].is_done() || !runs[2].is_done(); ++n) {
      nodes.step();
      if (n % 400 == 200) nodes.network().break_connections(n % 800 == 200 ? "b" : "a");
    }
    for (RunHandle& run : runs) compare(run.get(), {{21}}, "seed " + std::to_string(seed));
  }
}

// Connections that break lose nothing: the transport repeats, and a run does not notice.
BOOST_AUTO_TEST_CASE(a_run_survives_broken_connections) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Nodes nodes(3, stepped_partitions(seed), Between::simulation);
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
    Nodes nodes(3, stepped_partitions(seed), Between::simulation);
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
      BOOST_TEST((status.code() == Code::out_of_range),
                 "seed " << seed << ": " << status.message());
      BOOST_TEST(says(status.message(), {"node 'b'", "Gather", "loss_test.cpp"}));
    }
  }
}

namespace {

// Connections that are silent for long are soon given up.
SimulationOptions impatient() {
  SimulationOptions o;
  o.router.silence = std::chrono::milliseconds(300),
  o.router.heartbeat = std::chrono::milliseconds(100),
  o.router.away = std::chrono::milliseconds(500);
  return o;
}

// c makes a value once, and b uses it in each of many iterations.
Function once_then_loop(Nodes& nodes, Graph& g) {
  Expr once;
  {
    auto d = g.on_device(kC);
    once = g.random_uniform({2}) * 0.0 + 3.0;
  }
  auto [n, t] =
      while_loop([](Expr i, Expr) { return i < 600; },
                 [&](Expr i, Expr v) {
                   Expr next = i + 1;
                   auto d = g.on_device(kB);
                   return std::tuple{next, v * 0.5 + once * 0.5};
                 },
                 // seconds, then
                 std::tuple{g.constant(0), g.ones(DType::f32, {2})}, {.parallel_iterations = 1});
  return nodes.engine().compile(g, {}, {t * 1.0});
}

/// c dies, or is cut off from b, a while after the run has begun: true if that goes on when b
/// knows.
bool loses_c(Nodes& nodes, const RunHandle& run, std::uint64_t seed) {
  nodes.until(std::chrono::milliseconds(60), [&] { return run.is_done(); });
  if (seed % 2) nodes.network().kill("c");
  else nodes.network().cut("b", "c");
  const auto b_has_lost_it = [&] {
    const std::vector<std::string> there = nodes[1].nodes();
    return std::find(there.begin(), there.end(), "c") == there.end();
  };
  return nodes.until(std::chrono::seconds(30), [&] { return run.is_done() || b_has_lost_it(); }) &&
         !run.is_done();
}

}  // namespace

// Dead without a word, or cut off from b alone: what b awaits of it has come, and the run goes on.
BOOST_AUTO_TEST_CASE(a_node_may_die_after_its_part) {
  int lost_in_the_midst = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    Nodes nodes(3, keeping_pace(stepped_partitions(seed)), Between::simulation, impatient());
    Graph g;
    Function f = once_then_loop(nodes, g);
    RunHandle run = f.start({});
    lost_in_the_midst += loses_c(nodes, run, seed);
    compare(run.get(), {{3, 3}}, "seed " + std::to_string(seed));
  }
  BOOST_TEST(lost_in_the_midst == 12);
}

// c decides on the loop, far ahead of a and b, which need a round trip for each iteration; when it
// has broadcast them all it is no more of the run's.
BOOST_AUTO_TEST_CASE(a_node_may_die_after_its_last_predicate) {
  int lost_in_the_midst = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    Nodes nodes(3, stepped_partitions(seed), Between::simulation, impatient());
    Graph g;
    auto [n, t] = [&] {
      auto decides = g.on_device(kC);
      return while_loop([](Expr i, Expr) { return i < 200; },
                        [&](Expr i, Expr v) {
                          Expr next = i + 1, half;
                          {
                            auto d = g.on_device(kB);
                            half = v + 0.5;
                          }
                          auto d = g.on_device("/node:a/cpu:0");
                          return std::tuple{next, half + 0.5};
                        },
                        std::tuple{g.constant(0), g.ones(DType::f32, {2})},
                        {.parallel_iterations = 1});
    }();
    Function f = nodes.engine().compile(g, {}, {t * 1.0});
    RunHandle run = f.start({});
    lost_in_the_midst += loses_c(nodes, run, seed);
    compare(run.get(), {{201, 201}}, "seed " + std::to_string(seed));
  }
  BOOST_TEST(lost_in_the_midst == 12);
}

// The other way round: a has decided on all iterations, and b has what it needs of that; but for
// each it needs what c makes, far behind.
BOOST_AUTO_TEST_CASE(a_node_that_has_sent_part_of_a_loop_is_awaited) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Nodes nodes(3, stepped_partitions(seed), Between::simulation, impatient());
    Graph g;
    auto [n, t, u] =
        while_loop([](Expr i, Expr, Expr) { return i < 200; },
                   [&](Expr i, Expr v, Expr w) {
                     Expr next = i + 1, x, y;
                     {
                       auto d = g.on_device(kC);
                       x = v + 0.5;
                     }
                     {
                       auto d = g.on_device(kB);
                       y = w + x;
                     }
                     return std::tuple{next, x + 0.5, y};
                   },
                   std::tuple{g.constant(0), g.ones(DType::f32, {2}), g.ones(DType::f32, {2})},
                   {.parallel_iterations = 1});
    Function f = nodes.engine().compile(g, {}, {t * 1.0, u * 1.0});
    RunHandle run = f.start({});
    nodes.until(std::chrono::milliseconds(60), [&] { return run.is_done(); });
    nodes.network().cut("b", "c");
    BOOST_TEST(nodes.until(std::chrono::seconds(30), [&] { return run.is_done(); }));
    const std::string why = run.wait().message();
    BOOST_TEST((run.wait().code() == Code::unavailable), "seed " << seed << ": " << why);
    BOOST_TEST((says(why, {"node 'b': node 'c' was lost", "awaited from it", "loss_test.cpp",
                           "of loop 'while_loop"}) ||
                says(why, {"node 'c': node 'b' was lost"})),
               why);
  }
}

// a reaches both, but they do not reach each other: the one that awaits the other reports it to a,
// whose next call waits for no broken plan.
BOOST_AUTO_TEST_CASE(a_plan_that_two_others_break_is_made_anew) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Nodes nodes(3, stepped_partitions(seed), Between::simulation, impatient());
    double expected = 1;
    for (int i = 0; i < 20; ++i) expected = expected * 0.5 + 1.0;
    Graph g;
    Function f = round_trip(nodes, g, 20);
    compare(f({}), {{expected, expected}}, "before");
    RunHandle run = f.start({});
    for (std::uint64_t n = 0; n < 30 + seed && !run.is_done(); ++n) nodes.step();
    nodes.network().cut("b", "c");
    const Status status = run.wait();
    BOOST_TEST((status.code() == Code::unavailable), "seed " << seed << ": " << status.message());
    BOOST_TEST((says(status.message(), {"node 'b': node 'c' was lost", "awaited from it"}) ||
                says(status.message(),
                     {"node 'c': node 'b' was lost", "awaited from it", "loss_test.cpp"})));
    // As long as they cannot reach each other, a function over both is refused with an error that
    // names both; a function over either runs.
    const std::string why = refused([&] { f({}); });
    BOOST_TEST((says(why, {"node 'b'", "it cannot reach node 'c'"}) ||
                says(why, {"node 'c'", "it cannot reach node 'b'"}) || says(why, {"was lost"})),
               why);
    Graph h;
    Expr y;
    {
      auto d = h.on_device(kB);
      y = h.ones(DType::f32, {2}) * h.random_uniform({2}) * 0.0 + 2.0;
    }
    compare(nodes.engine().run(h, {}, {y + 1.0}), {{3, 3}}, "over a and b");
    nodes.network().heal();
    const auto works = [&] {
      try {
        compare(f({}), {{expected, expected}}, "healed");
        return true;
      } catch (const Error&) { return false; }
    };
    bool has_healed = false;
    for (int tries = 0; tries < 40 && !has_healed; ++tries) {
      nodes.until(std::chrono::seconds(1), [] { return false; });
      has_healed = works();
    }
    BOOST_TEST(has_healed, "seed " << seed);
    compare(f({}), {{expected, expected}}, "and stays so");
  }
}

// While nothing runs, a is notified as well, and no call fails for it.
BOOST_AUTO_TEST_CASE(a_plan_that_was_broken_in_between_fails_no_call) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Nodes nodes(3, stepped_partitions(seed), Between::simulation, impatient());
    double expected = 1;
    for (int i = 0; i < 5; ++i) expected = expected * 0.5 + 1.0;
    Graph g;
    Function f = round_trip(nodes, g, 5);
    compare(f({}), {{expected, expected}}, "before");
    nodes.network().cut("b", "c");
    BOOST_TEST(nodes.until(std::chrono::seconds(10), [&] {
      return nodes[1].nodes().size() == 2 && nodes[2].nodes().size() == 2;
    }));
    nodes.network().heal();
    BOOST_TEST(nodes.until(std::chrono::seconds(40), [&] { return nodes.agree(); }));
    compare(f({}), {{expected, expected}}, "seed " + std::to_string(seed));
  }
}

// b and c have not heard anything of each other that the run needs: that they are cut off from each
// other is nothing to it.
BOOST_AUTO_TEST_CASE(nodes_without_a_common_edge_may_be_cut_off) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Nodes nodes(3, keeping_pace(stepped_partitions(seed)), Between::simulation, impatient());
    Graph g;
    auto [n, t, u] =
        while_loop([](Expr i, Expr, Expr) { return i < 600; },
                   [&](Expr i, Expr v, Expr w) {
                     Expr next = i + 1, x, y;
                     {
                       auto d = g.on_device(kB);
                       x = v * 0.5 + 1.0;
                     }
                     auto d = g.on_device(kC);
                     y = w * 0.5 + 2.0;
                     return std::tuple{next, x, y};
                   },
                   std::tuple{g.constant(0), g.ones(DType::f32, {2}), g.ones(DType::f32, {2})},
                   {.parallel_iterations = 1});
    Function f = nodes.engine().compile(g, {}, {t * 1.0 + u});
    RunHandle run = f.start({});
    nodes.until(std::chrono::milliseconds(50), [&] { return run.is_done(); });
    nodes.network().cut("b", "c");
    compare(run.get(), {{6, 6}}, "seed " + std::to_string(seed));
    BOOST_TEST(nodes[1].nodes().size() == 2u);
  }
}

// Wherever it is made, in each granularity: node, operation, iterations around it, the user's line.
BOOST_AUTO_TEST_CASE(an_error_names_node_operation_tag_and_line) {
  for (const Granularity granularity : {Granularity::partition, Granularity::op}) {
    for (const char* there : {"a", "b", "c"}) {
      EngineOptions o = stepped_partitions(7);
      o.granularity = granularity;
      Nodes nodes(3, o, Between::simulation);
      Graph g;
      Expr table = g.constant(Tensor::of<float>({1, 2, 3, 4, 5, 6, 7}));
      unsigned line = 0;
      auto [i_end, t] = while_loop(
          [](Expr i, Expr) { return i < 5; },
          [&](Expr i, Expr v) {
            auto [k_end, u] = while_loop(
                [](Expr k, Expr) { return k < 4; },
                [&](Expr k, Expr w) {
                  Expr next = k + 1, found;
                  {
                    auto d = g.on_device(std::string("/node:") + there + "/cpu:0");
                    line = __LINE__ + 1;
                    found = gather(table, reshape(cast(i * 4 + k == 7, DType::i32) * 100, {1}));
                  }
                  auto d = g.on_device(kB);
                  return std::tuple{next, w + found};
                },
                std::tuple{g.constant(0), v}, {.name = "inner"});
            return std::tuple{i + 1, u};
          },
          std::tuple{g.constant(0), g.zeros(DType::f32, {1})}, {.name = "outer"});
      Function f = nodes.engine().compile(g, {}, {t * 1.0});
      const Status status = f.start({}).wait();
      BOOST_TEST((status.code() == Code::out_of_range), status.message());
      BOOST_TEST(
          says(status.message(), {std::string("node '") + there + "': ", "Gather",
                                  "loss_test.cpp:" + std::to_string(line),
                                  "in iteration 1 of loop 'outer", "iteration 3 of loop 'inner"}),
          status.message());
      Graph h;
      compare(nodes.engine().run(h, {}, {h.constant(2.f) * h.ones(DType::f32, {2})}), {{2, 2}},
              "goes on");
    }
  }
}

// Cancelled again and again, at any moment: what comes late for a run that is over is dropped, and
// the next one is right.
BOOST_AUTO_TEST_CASE(late_tokens_are_dropped) {
  std::uint64_t late = 0, early = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Nodes nodes(3, stepped_partitions(seed), Between::simulation);
    Graph g;
    Function f = round_trip(nodes, g, 10);
    for (std::uint64_t round = 0; round < 6; ++round) {
      RunHandle run = f.start({});
      for (std::uint64_t n = 0; n < (round == 0 ? 0 : 37 * round + seed) && !run.is_done(); ++n)
        nodes.step();
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
