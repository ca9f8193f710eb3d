// How far iterations of a loop ran side by side, and how long runs are under way, on a clock that
// is advanced by hand: the same numbers wherever they are reported.
#include <boost/test/unit_test.hpp>

#include <nlohmann/json.hpp>

#include <troupe/cluster/inspect/inspection_json.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(loop_time_test)

namespace {

using namespace std::chrono_literals;
using json = nlohmann::json;

json row_of(const json& table, std::size_t row) {
  json o;
  for (std::size_t c = 0; c < table["columns"].size(); ++c)
    o[table["columns"][c].get<std::string>()] = table["rows"].at(row).at(c);
  return o;
}

/// Five iterations, at most three of them open; each takes an element put into a queue.
struct Taking {
  Nodes nodes{1, stepped(), Between::simulation};
  Graph g;
  Expr x, put;
  Function loop;
  std::unique_ptr<CounterCache> cache;
  Taking() {
    x = g.input("x", DType::f32, Shape{});
    Queue q = g.fifo_queue("jobs", {{DType::f32, Shape{}}}, 8);
    put = q.enqueue({x});
    auto [i, s] = while_loop([](Expr n, Expr) { return n < 5; },
                             [&](Expr n, Expr sum) {
                               return std::tuple{n + 1, sum + q.dequeue()[0]};
                             },
                             std::tuple{g.constant(0), g.constant(0.f)},
                             {.name = "taking", .parallel_iterations = 3});
    loop = nodes.engine().compile(g, {}, {s});
    cache = std::make_unique<CounterCache>(
        nodes[0]
            .inspect({.kind = NodeQuestion::Kind::plan, .plan = {"a", 1, 1}})
            .at(0)
            .report.plan);
  }
  void settle() {
    for (int i = 0; i < 2000; ++i) nodes.step();
  }
  void give() {
    nodes.engine().run(g, {{x, Tensor::scalar(1.0f)}}, {put});
    settle();
  }
  json counters() {
    cache->update(nodes[0].inspect({.kind = NodeQuestion::Kind::counters, .plan = {"a", 1, 1}}));
    return row_of(json::parse(cache->changes(0))["loops"], 0);
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(parallelism_is_the_time_average_of_open_iterations) {
  Taking t;
  BOOST_TEST(t.loop.loops().at(0).achieved_parallelism == 0.0);  // no time has passed
  RunHandle run = t.loop.start({});
  t.settle();
  Engine& engine = t.nodes.engine();
  const auto for_so_long = [&] {
    return t.nodes[0].inspect().at(0).report.engine.runs.at(0).for_so_long;
  };
  BOOST_TEST((for_so_long() == 0s));
  engine.advance_time(1s);  // 0, 1 and 2 are open
  t.give();
  engine.advance_time(2s);  // 1 to 3
  BOOST_TEST((for_so_long() == 3s));
  const json midway = t.counters();  // also what has passed since an iteration opened
  BOOST_TEST(midway["open_ns"] == 3'000'000'000);
  BOOST_TEST(midway["achieved_parallelism"] == 3.0);
  t.give();
  engine.advance_time(1s);  // 2 to 4
  t.give();
  engine.advance_time(1s);  // 3, 4, and 5, whose predicate is false
  t.give();
  engine.advance_time(3s);  // 4 and 5
  t.give();
  BOOST_REQUIRE(run.is_done());
  BOOST_TEST(run.get()[0].at(0) == 5.0);

  constexpr double kAchieved = (3.0 * 5 + 2.0 * 3) / 8;
  const LoopReport r = t.loop.loops().at(0);
  BOOST_TEST(r.achieved_parallelism == kAchieved);
  BOOST_TEST(r.most_parallel == 3u);
  BOOST_TEST(r.text().find("2.62 open side by side (at most 3, allowed 3)") != std::string::npos,
             r.text());
  const json told = t.counters();
  BOOST_TEST(told["loop"] == r.loop);
  BOOST_TEST(told["device"] == "/node:a/cpu:0");
  BOOST_TEST(told["executions"] == 1);
  BOOST_TEST(told["iterations"] == 5);
  BOOST_TEST(told["window"] == 3);
  BOOST_TEST(told["most_parallel"] == 3);
  BOOST_TEST(told["open_ns"] == 8'000'000'000);
  BOOST_TEST(told["achieved_parallelism"] == kAchieved);
  BOOST_TEST(told["limited_by_window"] == r.limited_by_window);
  const std::vector<ActorDescription>& actors = t.cache->plan().actors;
  for (std::size_t i = 0; i < actors.size(); ++i) {
    const json actor = json::parse(t.cache->actor_json(static_cast<std::int32_t>(i), {}, {}));
    BOOST_TEST(actor.contains("loop") == !actors[i].frame.empty());
    if (actor.contains("loop")) BOOST_TEST(actor["loop"]["achieved_parallelism"] == kAchieved);
  }
  // Runs' times are by the same clock.
  const EngineSnapshot ended = t.nodes[0].inspect().at(0).report.engine;
  BOOST_REQUIRE(!ended.recent.empty());
  BOOST_TEST(std::count_if(ended.recent.begin(), ended.recent.end(),
                           [](const EndedRun& e) { return e.took_ns == 8'000'000'000; }) == 1);
  for (const EndedRun& e : ended.recent) BOOST_TEST((e.took_ns == 0 || e.took_ns == 8'000'000'000));
}

// On the real clock too it is no more than the iteration window, and less than one iteration at no
// time.
BOOST_AUTO_TEST_CASE(parallelism_is_within_the_window) {
  for (const int window : {1, 4}) {
    Graph g;
    Expr x = g.ones(DType::f32, {64, 64});
    auto [n, s] = while_loop([](Expr i, Expr) { return i < 200; },
                             [&](Expr i, Expr v) {
                               return std::tuple{i + 1, v + sum(matmul(x, x))};
                             },
                             std::tuple{g.constant(0), g.constant(0.f)},
                             {.name = "work", .parallel_iterations = window});
    Engine engine;
    Function f = engine.compile(g, {}, {n, s});
    f({});
    const double achieved = f.loops().at(0).achieved_parallelism;
    BOOST_TEST(achieved >= 1.0);
    BOOST_TEST(achieved <= window);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
