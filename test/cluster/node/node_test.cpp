// Programs over several nodes of one process.
#include <boost/test/unit_test.hpp>

#include <atomic>

#include <troupe/actors/executor/loop_report.hpp>
#include <troupe/ops/graph/actor_node.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(node_test)

namespace {

using namespace std::chrono_literals;

const std::string kB = "/node:b/cpu:0", kC = "/node:c/cpu:0";

// x*2+1 with the product on another node: whether these nodes still compute.
void still_computes(Nodes& nodes, const std::string& there) {
  Graph g;
  Expr x = g.input("x", DType::f32, {2});
  Expr y;
  {
    auto d = g.on_device(there);
    y = x * 2.0;
  }
  compare(nodes.engine().run(g, {{x, Tensor::of<float>({1, 2})}}, {y + 1.0}), {{3, 5}},
          "still computes");
}

// A loop that only an error, a cancellation or a loss ends: its values come from one node, its
// counter from another.
Expr endless(Graph& g, const std::string& there) {
  auto [n, t] = while_loop([](Expr i, Expr) { return i < 2000000000; },
                           [&](Expr i, Expr v) {
                             Expr next = i + 1;
                             auto d = g.on_device(there);
                             return std::tuple{next, v * 0.5 + 1.0};
                           },
                           std::tuple{g.constant(0), g.ones(DType::f32, {2})});
  return t;
}

}  // namespace

BOOST_AUTO_TEST_CASE(half_of_an_expression_on_another_node) {
  Nodes nodes(2);
  Graph g;
  Expr x = g.input("x", DType::f32, {2}), a = g.input("a", DType::f32, {2});
  Expr y;
  {
    auto there = g.on_device("/node:b");
    y = x * a;
  }
  Expr z = y + 1.0;
  Function f = nodes.engine().compile(g, {x, a}, {z, y});
  BOOST_TEST(says(
      f.explain(),
      {"/node:a/cpu:0", kB, "4 cut edges, 32 B a run", "the caller -> node b: feed 'a' f32[2], 8 B",
       "/node:b/cpu:0 -> /node:a/cpu:0: Mul ", "node b -> the caller: fetch Mul ",
       ") f32[2], 8 B\n\n", "  peak memory\n", "\n/node:a/cpu:0       1 ",
       " 20 B\n/node:b/cpu:0       1 ", " 24 B\n", "\ncritical path, ", "goes to /node:b/cpu:0\n",
       " on /node:b/cpu:0\n", "goes to /node:a/cpu:0\n", " on /node:a/cpu:0\n"}));
  for (int run = 0; run < 3; ++run)
    compare(f({Tensor::of<float>({1, 2}), Tensor::of<float>({3, 4})}), {{4, 9}, {3, 8}},
            "two nodes");
  BOOST_TEST(nodes[0].counters().messages_out > 0u);
}

BOOST_AUTO_TEST_CASE(a_state_lives_where_it_was_declared) {
  Nodes nodes(2);
  Graph g;
  Variable v;
  {
    auto there = g.on_device(kB);
    v = g.variable("v", Tensor::of<float>({1, 2}));
  }
  compare({nodes.engine().get(v)}, {{1, 2}}, "before any run");
  Expr sum = v.assign_add(g.constant(Tensor::of<float>({1, 1})));
  for (int run = 1; run <= 3; ++run)
    compare(nodes.engine().run(g, {}, {sum}), {{1.0 + run, 2.0 + run}}, "a run");
  compare({nodes.engine().get("v")}, {{4, 5}}, "by its name");
  BOOST_TEST(nodes.engine().variables() == std::vector<std::string>{"v"},
             boost::test_tools::per_element());
  nodes.engine().set(v, Tensor::of<float>({7, 8}));
  // it lives there, and is not that node's
  refusal([&] { nodes[1].engine().get("v"); }, Code::not_found);
  compare(nodes.engine().run(g, {}, {sum}), {{8, 9}}, "after it was set");
  const std::string why =
      refusal([&] { nodes.engine().set(v, Tensor::of<float>({1})); }, Code::invalid_argument);
  BOOST_TEST(says(why, {"node 'b'"}));
}

BOOST_AUTO_TEST_CASE(a_queue_of_another_node_feeds_this_one) {
  Nodes nodes(2);
  Graph g;
  auto declare = [&] {
    auto there = g.on_device(kB);
    return g.fifo_queue("q", {{DType::f32, {2}}}, 2);
  };
  Queue q = declare();
  Expr x = g.input("x", DType::f32, {2});
  Expr in = q.enqueue({x});
  Expr out = q.dequeue()[0] * 2.0;
  Function enqueue = nodes.engine().compile(g, {x}, {in}),
           dequeue = nodes.engine().compile(g, {}, {out});
  RunHandle waiting = dequeue.start({});  // nothing is in it yet
  enqueue({Tensor::of<float>({1, 2})});
  compare(waiting.get(), {{2, 4}}, "dequeued");
  RunHandle cancelled = dequeue.start({});
  cancelled.cancel();
  BOOST_TEST((cancelled.wait().code() == Code::cancelled));
  enqueue({Tensor::of<float>({3, 4})});
  compare(dequeue({}), {{6, 8}}, "not taken by what was cancelled");
}

BOOST_AUTO_TEST_CASE(a_users_actor_is_named_and_never_sent) {
  Nodes nodes(2);
  auto program = [&](const std::string& name) {
    Graph g;
    auto there = g.on_device(kB);
    Expr n = actor_node(g, name, {}, {{DType::i64, Shape{}}},
                        [](std::span<const Tensor>, std::span<Tensor> out) {
                          out[0] = Tensor::scalar<std::int64_t>(-1);
                        })[0];
    return nodes.engine().run(g, {}, {n})[0].item<std::int64_t>();
  };
  const std::string why = refusal([&] { program("nobody"); }, Code::not_found);
  BOOST_TEST(says(why, {"node 'b'", "user actor 'nobody'", "node_test.cpp"}));
  struct Counter final : NodeActor {
    std::int64_t n = 0;
    void receive(std::span<const Tensor>, std::span<Tensor> out) override {
      out[0] = Tensor::scalar(n++);
    }
  };
  register_actor("counter of node_test", [] { return std::make_unique<Counter>(); });
  for (std::int64_t run = 0; run < 3; ++run) BOOST_TEST(program("counter of node_test") == run);
}

BOOST_AUTO_TEST_CASE(errors_come_with_node_and_line) {
  Nodes nodes(3);
  Graph g;
  Expr table = g.constant(Tensor::of<float>({1, 2, 3}));
  Expr x = g.input("x", DType::i32, {1});
  Expr y;
  {
    auto there = g.on_device(kC);
    y = gather(table, x);
  }
  Expr z;
  {
    auto there = g.on_device(kB);
    z = y + 1.0;
  }
  Function f = nodes.engine().compile(g, {x}, {z * 2.0});
  for (int round = 0; round < 5; ++round) {
    const std::string why =
        refusal([&] { f({Tensor::of<std::int32_t>({7})}); }, Code::out_of_range);
    BOOST_TEST(says(why, {"node 'c'", "Gather", "node_test.cpp"}));
    compare(f({Tensor::of<std::int32_t>({2})}), {{8}}, "after an error");
  }
}

BOOST_AUTO_TEST_CASE(an_error_ends_a_loop_on_all_nodes) {
  Nodes nodes(3);
  Graph g;
  Expr table = g.constant(Tensor::of<float>({1, 2, 3}));
  auto [n, s] = while_loop([](Expr i, Expr) { return i < 1000000000; },
                           [&](Expr i, Expr t) {
                             Expr next = i + 1, r;
                             {
                               auto d = g.on_device(kB);
                               r = gather(table, reshape(i / 100, {1}));
                             }
                             auto d = g.on_device(kC);
                             return std::tuple{next, t + r};
                           },
                           std::tuple{g.constant(0), g.zeros(DType::f32, {1})});
  for (int round = 0; round < 3; ++round) {
    const std::string why = refusal([&] { nodes.engine().run(g, {}, {s}); }, Code::out_of_range);
    BOOST_TEST(says(why, {"node 'b'", "Gather"}));
  }
  still_computes(nodes, kC);
}

BOOST_AUTO_TEST_CASE(cancelling_and_timing_out_answer_at_once) {
  Nodes nodes(2);
  Graph g;
  Expr r = endless(g, kB);
  Function f = nodes.engine().compile(g, {}, {r});
  for (int round = 0; round < 3; ++round) {
    RunHandle run = f.start({});
    run.cancel();
    BOOST_TEST((run.wait().code() == Code::cancelled));
  }
  BOOST_TEST((f.start({}, {.timeout = std::chrono::milliseconds(20)}).wait().code() ==
              Code::deadline_exceeded));
  still_computes(nodes, kB);
}

BOOST_AUTO_TEST_CASE(values_that_are_not_finite_on_another_node_are_named) {
  Nodes nodes(2);
  Graph g;
  Expr x = g.input("x", DType::f64, {});
  const int line = __LINE__ + 5;
  auto [n, last] = while_loop([](Expr i, Expr) { return i < 20; },
                              [&](Expr i, Expr v) {
                                Expr below = v - 1.0;
                                auto there = g.on_device(kB);
                                return std::tuple{i + 1, sqrt(below)};
                              },
                              std::tuple{g.constant(0), x}, {.name = "train"});
  const Function f = nodes.engine().compile(g, {x}, {last}, {.check_finite = true});
  // 17, 4, 1.73, 0.86, and no root of a number below 0
  const std::string why = refusal([&] { f({Tensor::scalar(17.0)}); }, Code::invalid_argument);
  BOOST_TEST(says(why, {"Sqrt", "node_test.cpp:" + std::to_string(line),
                        "iteration 3 of loop 'train", "nan"}),
             why);
  still_computes(nodes, kB);
}

BOOST_AUTO_TEST_CASE(a_node_that_leaves_ends_its_runs_and_no_others) {
  Nodes nodes(3);
  Graph g, h;
  Function over_b = nodes.engine().compile(g, {}, {endless(g, kB)}),
           over_c = nodes.engine().compile(h, {}, {endless(h, kC)});
  RunHandle with_b = over_b.start({}), with_c = over_c.start({});
  nodes.remove(1);
  const Status lost = with_b.wait();
  BOOST_TEST((lost.code() == Code::unavailable), lost.message());
  BOOST_TEST(says(lost.message(), {"node 'b'", "awaited from it", "node_test.cpp"}));
  BOOST_TEST(!with_c.is_done());
  with_c.cancel();
  BOOST_TEST((with_c.wait().code() == Code::cancelled));
  still_computes(nodes, kC);
  BOOST_TEST(says(refusal([&] { over_b({}); }, Code::not_found), {"no node 'b'", "it has left"}));
  const std::string why = refusal([&] { still_computes(nodes, kB); }, Code::not_found);
  BOOST_TEST(says(why, {"no node 'b'", "a, c"}));
}

// Its part of the plan does not show the consumers of its outputs.
BOOST_AUTO_TEST_CASE(node_that_left_names_its_missing_values_outside_of_loops) {
  Nodes nodes(3);
  Graph g;
  Expr never = endless(g, kC), y;
  {
    auto there = g.on_device(kB);
    y = tanh(cast(never, DType::f32));
  }
  Function f = nodes.engine().compile(g, {}, {y + 1.0});
  RunHandle run = f.start({});
  nodes.remove(1);
  const Status lost = run.wait();
  BOOST_TEST((lost.code() == Code::unavailable), lost.message());
  BOOST_TEST(says(lost.message(), {"node 'b'", "awaited from it", "'Tanh", "node_test.cpp"}),
             lost.message());
}

// x of two elements, and 2 x + 1.
std::pair<Expr, Expr> doubled_on_b_plus_one(Graph& g) {
  Expr x = g.input("x", DType::f32, {2});
  Expr y;
  {
    auto d = g.on_device(kB);
    y = x * 2.0;
  }
  return {x, y + 1.0};
}

BOOST_AUTO_TEST_CASE(a_node_that_comes_back_takes_part_again) {
  Nodes nodes(2);
  Graph g;
  auto [x, z] = doubled_on_b_plus_one(g);
  for (int round = 0; round < 3; ++round) {
    compare(nodes.engine().run(g, {{x, Tensor::of<float>({1, 2})}}, {z}), {{3, 5}}, "round");
    nodes.remove_and_tell(1);
    nodes.add("b");
    nodes[1].wait_for({"a"}, std::chrono::seconds(60));
    nodes[0].wait_for({"b"}, std::chrono::seconds(60));
  }
}

BOOST_AUTO_TEST_CASE(a_function_is_made_again_when_its_node_is_there_again) {
  Nodes nodes(2);
  Graph g;
  auto [x, z] = doubled_on_b_plus_one(g);
  Function f = nodes.engine().compile(g, {x}, {z});
  const Function copy = f;
  for (int round = 0; round < 3; ++round) {
    compare(f({Tensor::of<float>({1, 2})}), {{3, 5}}, "round");
    compare(copy({Tensor::of<float>({1, 2})}), {{3, 5}}, "a copy");
    nodes.remove_and_tell(1);
    BOOST_TEST(says(refusal_once_heard(
                        [&] {
                          f({Tensor::of<float>({1, 2})});
                        },
                        Code::not_found),
                    {"no node 'b'"}));
    nodes.add("b");
    nodes[0].wait_for({"b"}, std::chrono::seconds(60));
  }
}

BOOST_AUTO_TEST_CASE(the_owner_that_leaves_ends_its_runs_everywhere) {
  Nodes nodes(2);
  {
    Graph g;
    Function f = nodes.engine().compile(g, {}, {endless(g, kB)});
    RunHandle run = f.start({});
    nodes.remove(0);  // blocks until nothing of it is left
  }
  Graph g;
  compare(nodes.engine().run(g, {}, {g.constant(2.f) * 2.0}), {{4}}, "b goes on");
}

BOOST_AUTO_TEST_CASE(several_runs_in_flight) {
  Nodes nodes(2);
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{});
  auto [n, s] = while_loop([](Expr i, Expr) { return i < 50; },
                           [&](Expr i, Expr t) {
                             Expr next = i + 1;
                             auto d = g.on_device(kB);
                             return std::tuple{next, t + x};
                           },
                           std::tuple{g.constant(0), g.constant(0.f)});
  Function f = nodes.engine().compile(g, {x}, {s});
  std::vector<RunHandle> runs;
  for (int i = 0; i < 40; ++i) runs.push_back(f.start({Tensor::scalar(static_cast<float>(i))}));
  for (int i = 0; i < 40; ++i)
    compare(runs[static_cast<std::size_t>(i)].get(), {{50.0 * i}}, "in flight");
}

BOOST_AUTO_TEST_CASE(a_fast_producer_is_bounded_by_its_consumer_elsewhere) {
  for (int parallel : {1, 3}) {
    Nodes nodes(2);
    Graph g;
    Expr x = g.ones(DType::f32, {40, 40});
    auto [n, s] =
        while_loop([](Expr i, Expr) { return i < 200; },
                   [&](Expr i, Expr t) {
                     Expr y = x * cast(i, DType::f32), next = i + 1;
                     auto d = g.on_device(kB);
                     return std::tuple{next, t + sum(matmul(y, y))};
                   },
                   std::tuple{g.constant(0), g.constant(0.f)}, {.parallel_iterations = parallel});
    Function f = nodes.engine().compile(g, {}, {n, s});
    double expected = 0;
    for (int i = 0; i < 200; ++i) expected += 64000.0 * i * i;
    std::vector<Tensor> out = f({});
    BOOST_TEST(out[1].at(0) == expected, boost::test_tools::tolerance(1e-3));
    std::uint64_t held = 0, elsewhere = 0;
    for (const LoopReport& r : f.loops()) {
      BOOST_TEST(r.most_parallel <= static_cast<std::uint64_t>(parallel));
      held += r.held_tokens;
      elsewhere += r.device == kB ? r.iterations : 0;
    }
    BOOST_TEST(elsewhere == 200u);
    BOOST_TEST(held > 0u);  // the limit was seen to bind
  }
}

BOOST_AUTO_TEST_CASE(loops_of_one_node_of_a_cluster_stay_whole) {
  // `there`: of the body, `around`: of the whole program
  const auto last_of = [](Nodes& nodes, const std::string& there, const std::string& told,
                          const std::string& around = {}) {
    Graph g;
    auto all = g.on_device(around);
    Expr n = g.input("n", DType::f32, Shape{});
    Expr last = while_loop([&](Expr i) { return i < n; },
                           [&](Expr i) {
                             auto d = g.on_device(there);
                             return i + 1.0;
                           },
                           g.constant(0.f));
    const Function f = nodes.engine().compile(g, {n}, {last});
    BOOST_TEST(says(f.explain(), {told}), f.explain());
    return f({Tensor::scalar(100.5f)})[0].item<float>();
  };
  const std::string a = "/node:a/cpu:0";
  Nodes nodes(2);
  BOOST_TEST(last_of(nodes, "", ": resident") == 101);
  BOOST_TEST(last_of(nodes, a, ": resident", a) == 101);
  BOOST_TEST(last_of(nodes, kB, ": lowered: something in the program is on " + kB) == 101);
  BOOST_TEST(last_of(nodes, kB, ": lowered: something in the program is on " + kB, a) == 101);
  EngineOptions automatic = stepped(1);
  automatic.placement = Placement::automatic;
  Nodes placed(2, automatic);
  BOOST_TEST(last_of(placed, "", ": lowered: automatic placement may choose another node") == 101);
}

// The second program has no device of its own: its variable stays on b, and its loop is lowered.
BOOST_AUTO_TEST_CASE(loop_beside_a_variable_of_another_node_is_lowered) {
  Nodes nodes(2);
  const auto last_of = [&](const std::string& device) {
    Graph g;
    auto all = g.on_device(device);
    const Expr step = g.variable("step", Tensor::scalar(1.f)).read();
    const Expr last = while_loop([](Expr i) { return i < 10.0; }, [&](Expr i) { return i + step; },
                                 g.constant(0.f));
    const Function f = nodes.engine().compile(g, {}, {last});
    BOOST_TEST(says(f.explain(), {": lowered: "}), f.explain());
    BOOST_TEST(says(f.explain(), {device.empty() ? "state 'step' is on " + kB : kB}), f.explain());
    return f({})[0].item<float>();
  };
  BOOST_TEST(last_of(kB) == 10);
  BOOST_TEST(last_of("") == 10);
}

// Links are measured by the simulation's clock, kernels by the machine's: milliseconds here against
// microseconds there.
BOOST_AUTO_TEST_CASE(placement_goes_by_what_was_measured) {
  EngineOptions o = stepped(1);
  o.placement = Placement::automatic;
  o.costs.device.flops_per_ns = 1e-4;  // far too slow: seconds for what takes microseconds
  Nodes nodes(3, o, Between::simulation);
  nodes.network().slow_down("a", "c", 1s, 0);
  Graph g;
  Expr x = g.input("x", DType::f32, {64, 64}), y = g.input("y", DType::f32, {64, 64});
  const std::vector<Expr> fetches{sum(matmul(x, x)), sum(matmul(y, y))};
  const std::vector<Tensor> feeds{Tensor::zeros(DType::f32, {64, 64}),
                                  Tensor::zeros(DType::f32, {64, 64})};
  const auto is_near = nodes.engine().compile(g, {x, y}, fetches).explain();
  BOOST_TEST(says(is_near, {"/node:b/cpu:0", "link a - c: 1.0 s", "link b - c: ", "(measured)"}),
             is_near);
  BOOST_TEST(is_near.find("/node:c/cpu:0 ") == std::string::npos, is_near);

  Nodes slow(3, o, Between::simulation);
  slow.network().slow_down("a", "b", 1s, 0);
  Function f = slow.engine().compile(g, {x, y}, fetches);
  const std::string is_far = f.explain();
  BOOST_TEST(says(is_far, {"/node:c/cpu:0 ", "link a - b: 1.0 s"}), is_far);
  BOOST_TEST(is_far.find("/node:b/cpu:0 ") == std::string::npos, is_far);
  BOOST_TEST(is_far.find("measured: ") == std::string::npos, is_far);

  for (int run = 0; run < 3; ++run) f(feeds);
  Function after = slow.engine().compile(g, {x, y}, fetches);
  const std::string is_known = after.explain();
  BOOST_TEST(says(is_known, {"measured: "}), is_known);
  BOOST_TEST(is_known.find("\n/node:c/cpu:0 ") == std::string::npos, is_known);
}

// The bandwidth of a link changes: it is measured again with a later plan, not with each.
BOOST_AUTO_TEST_CASE(links_are_measured_anew_after_a_while) {
  EngineOptions o = stepped(1);
  o.placement = Placement::automatic;
  Nodes nodes(2, o, Between::simulation);
  Graph g;
  Expr x = g.input("x", DType::f32, {64, 64});
  const auto link = [&] {
    const std::string text = nodes.engine().compile(g, {x}, {sum(x)}).explain();
    const std::size_t at = text.find("link a - b: ");
    BOOST_REQUIRE_MESSAGE(at != std::string::npos, text);
    return text.substr(at, text.find('\n', at) - at);
  };
  const std::string before = link();
  nodes.network().slow_down("a", "b", std::chrono::milliseconds(100), 0);
  BOOST_TEST(link() == before);
  nodes.until(std::chrono::seconds(31), [] { return false; });
  BOOST_TEST(link() != before);
}

BOOST_AUTO_TEST_CASE(draws_are_the_same_wherever_they_are_made) {
  EngineOptions seeded;
  seeded.seed = 7;
  auto draw = [&](Engine& engine, const std::string& there) {
    Graph g;
    auto d = g.on_device(there);
    return engine.run(g, {}, {g.random_uniform({4})}, {.step = 3})[0];
  };
  Nodes nodes(2, seeded);
  Engine alone(seeded);
  const Tensor expected = draw(alone, "cpu:0");
  BOOST_TEST(identical(draw(nodes.engine(), "cpu:0"), expected));
  BOOST_TEST(identical(draw(nodes.engine(), kB), expected));
}

BOOST_AUTO_TEST_CASE(names_of_nowhere_are_refused) {
  Engine alone;
  Graph g;
  Expr y;
  {
    auto d = g.on_device(kB);
    y = g.constant(1.f) * g.random_uniform(Shape{});
  }
  BOOST_TEST(
      says(refusal([&] { alone.run(g, {}, {y}); }, Code::not_found), {kB, "no node of a cluster"}));
  Nodes nodes(2);
  const std::string line = fmt::format("' (node_test.cpp:{})", __LINE__ + 5);
  const auto on = [&](const char* device) {
    Graph h;
    Expr x = h.input("x", DType::f32, {});
    auto d = h.on_device(device);
    nodes.engine().run(h, {{x, Tensor::scalar(1.f)}}, {x * 2.0});
  };
  const std::string node = refusal([&] { on("/node:bb/cpu:0"); }, Code::not_found),
                    device = refusal([&] { on("/node:b/tpu:0"); }, Code::not_found);
  BOOST_TEST(says(node, {line, "there is no node 'bb'", "there are a, b; did you mean 'b'?"}),
             node);
  BOOST_TEST(says(device, {"node 'b': ", line, "there is no device 'tpu:0'"}), device);
  for (const auto& [name, labels] :
       {std::pair{"a/b", ""}, std::pair{"a\nb", ""}, std::pair{"*", ""}, std::pair{"d", "x=1 x=2"}})
    refusal([&] { nodes.add(name, {}, labels); }, Code::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
