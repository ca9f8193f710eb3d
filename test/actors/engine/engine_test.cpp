#include <troupe/actors/engine/engine.hpp>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/actors/executor/loop_report.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/actor_node.hpp>
#include <troupe/test/support/refusal.hpp>

using namespace troupe;
using troupe::test::refusal;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(engine_test)

namespace {

float item(const std::vector<Tensor>& out, int i = 0) {
  return out[static_cast<std::size_t>(i)].item<float>();
}

// The ways to run that must not change a result.
struct Setting {
  int workers;
  Granularity granularity;
  bool deterministic;
  const char* device = "cpu:0";
};
std::ostream& operator<<(std::ostream& out, const Setting& s) {
  return out << s.workers << " workers, granularity " << int(s.granularity)
             << (s.deterministic ? ", deterministic" : "") << " on " << s.device;
}
const std::vector<Setting> kSettings{{1, Granularity::partition, false},
                                     {2, Granularity::partition, false},
                                     {2, Granularity::automatic, false},
                                     {2, Granularity::op, false},
                                     {1, Granularity::op, true},
                                     {1, Granularity::automatic, true},
                                     {2, Granularity::automatic, false, "sim:0"}};

EngineOptions options_of(const Setting& s) {
  EngineOptions o;
  o.workers = s.workers;
  o.granularity = s.granularity;
  o.deterministic = s.deterministic;
  o.default_device = s.device;
  return o;
}

}  // namespace

BOOST_DATA_TEST_CASE(a_line, boost::unit_test::data::make(kSettings), setting) {
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{});
  Expr y = x * 2.0 + 1.0;
  Engine engine(options_of(setting));
  Function f = engine.compile(g, {x}, {y});
  for (int i = 0; i < 100; ++i)
    BOOST_TEST(item(f({Tensor::scalar(float(i))})) == 2.f * float(i) + 1);
}

BOOST_DATA_TEST_CASE(a_random_tree_of_sums, boost::unit_test::data::make(kSettings), setting) {
  // 4096 copies of one are added in a random binary tree.
  Graph g;
  Expr one = g.input("one", DType::f32, Shape{});
  std::vector<Expr> open(4096, one);
  std::uint64_t state = 42;
  while (open.size() > 1) {
    auto draw = [&] {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      return static_cast<std::size_t>(state >> 33) % open.size();
    };
    std::size_t i = draw();
    Expr a = open[i];
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
    std::size_t j = draw();
    open[j] = open[j] + a;
  }
  Engine engine(options_of(setting));
  CompileOptions plain;
  plain.optimize = false;
  BOOST_TEST(item(engine.compile(g, {one}, {open[0]}, plain)({Tensor::scalar(1.f)})) == 4096.f);
}

BOOST_DATA_TEST_CASE(a_value_added_to_itself_ten_times, boost::unit_test::data::make(kSettings),
                     setting) {
  Graph g;
  Expr v = g.input("v", DType::f32, Shape{});
  Expr x = v;
  for (int i = 0; i < 10; ++i) x = x + x;
  Engine engine(options_of(setting));
  BOOST_TEST(item(engine.run(g, {{v, Tensor::scalar(1.f)}}, {x})) == 1024.f);
}

BOOST_AUTO_TEST_CASE(any_edge_can_be_fed_and_fetched) {
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{});
  Expr mid = x + 1.0;
  Expr y = mid * 10.0;
  Engine engine;
  auto out = engine.run(g, {{x, Tensor::scalar(1.f)}}, {x, mid, y, mid});
  BOOST_TEST(item(out, 0) == 1.f);
  BOOST_TEST(item(out, 1) == 2.f);
  BOOST_TEST(item(out, 2) == 20.f);
  BOOST_TEST(item(out, 3) == 2.f);
  // x is not needed then
  BOOST_TEST(item(engine.run(g, {{mid, Tensor::scalar(5.f)}}, {y})) == 50.f);
}

BOOST_AUTO_TEST_CASE(engine_names_missing_and_wrong_arguments) {
  Graph g, other;
  Expr x = g.input("x", DType::f32, Shape{2});
  Expr y = x + 1.0;
  Engine engine;
  auto says = [](const char* part) {
    return [part](const Error& e) { return std::string(e.what()).find(part) != std::string::npos; };
  };
  BOOST_CHECK_EXCEPTION(engine.compile(g, {}, {y}), Error, says("'x'"));
  BOOST_CHECK_EXCEPTION(engine.compile(other, {}, {y}), Error, says("fetch 0"));
  Function f = engine.compile(g, {x}, {y});
  BOOST_CHECK_EXCEPTION(f({}), Error, says("takes 1 feeds, not 0"));
  BOOST_CHECK_EXCEPTION(f({Tensor::scalar(1.f)}), Error, says("must be f32[2], not f32[]"));
  BOOST_CHECK_EXCEPTION(f({Tensor::of<double>({1, 2})}), Error, says("f64[2]"));
  BOOST_CHECK_EXCEPTION(engine.get("nobody"), Error, says("nobody"));
}

BOOST_DATA_TEST_CASE(effects_happen_in_program_order, boost::unit_test::data::make(kSettings),
                     setting) {
  Graph g;
  Variable a = g.variable("a", Tensor::scalar(1.f)), b = g.variable("b", Tensor::scalar(0.f));
  Expr before = a.read();
  Expr a1 = a.assign_add(10.0);
  Expr middle = a.read();
  Expr b1 = b.assign(middle * 2.0);
  Expr a2 = a.assign(b.read() + 100.0);
  Engine engine(options_of(setting));
  auto out = engine.run(g, {}, {before, a1, middle, b1, a2});
  BOOST_TEST(item(out, 0) == 1.f);
  BOOST_TEST(item(out, 1) == 11.f);
  BOOST_TEST(item(out, 2) == 11.f);
  BOOST_TEST(item(out, 3) == 22.f);
  BOOST_TEST(item(out, 4) == 122.f);
  BOOST_TEST(engine.get(a).item<float>() == 122.f);
  // Only what is fetched runs; order never makes something run.
  BOOST_TEST(item(engine.run(g, {}, {middle})) == 122.f);
}

BOOST_DATA_TEST_CASE(updates_of_overlapping_runs_are_atomic,
                     boost::unit_test::data::make(kSettings), setting) {
  Graph g;
  Variable counter = g.variable("counter", Tensor::of<std::int64_t>({0, 0, 0}));
  Expr delta = g.input("delta", DType::i64, Shape{3});
  Expr up = counter.assign_add(delta);
  Engine engine(options_of(setting));
  Function f = engine.compile(g, {delta}, {up});
  std::vector<RunHandle> runs;
  for (int i = 0; i < 200; ++i) runs.push_back(f.start({Tensor::of<std::int64_t>({1, 2, 3})}));
  for (RunHandle& r : runs) r.get();
  BOOST_TEST(engine.get(counter).to_vector<std::int64_t>() ==
             (std::vector<std::int64_t>{200, 400, 600}));
}

BOOST_DATA_TEST_CASE(a_failing_kernel_fails_its_run_and_no_other,
                     boost::unit_test::data::make(kSettings), setting) {
  Graph g;
  Expr table = g.input("table", DType::f32, Shape{kAny});
  Expr index = g.input("index", DType::i64, Shape{kAny});
  unsigned line = __LINE__ + 1;
  Expr y = sum(gather(table, index) * 2.0);
  Engine engine(options_of(setting));
  Function f = engine.compile(g, {table, index}, {y});
  Tensor t = Tensor::of<float>({1, 2, 3});
  for (int i = 0; i < 3; ++i) {
    BOOST_CHECK_EXCEPTION(f({t, Tensor::of<std::int64_t>({0, 7})}), Error, [&](const Error& e) {
      std::string text = e.what();
      BOOST_TEST_MESSAGE(text);
      return e.code() == Code::out_of_range && text.find("Gather") != std::string::npos &&
             text.find("7") != std::string::npos &&
             text.find("engine_test.cpp:" + std::to_string(line)) != std::string::npos;
    });
    BOOST_TEST(item(f({t, Tensor::of<std::int64_t>({0, 2})})) == 8.f);
  }
}

BOOST_DATA_TEST_CASE(a_queue_couples_two_runs, boost::unit_test::data::make(kSettings), setting) {
  Graph g;
  Queue q = g.fifo_queue("q", {{DType::f32, Shape{}}}, 2);
  Expr x = g.input("x", DType::f32, Shape{});
  Expr in = q.enqueue({x});
  Expr out = q.dequeue()[0];
  Engine engine(options_of(setting));
  Function put = engine.compile(g, {x}, {in});
  Function take = engine.compile(g, {}, {out});
  // Six elements through a queue of two: producers wait for consumers, and none is lost.
  std::vector<RunHandle> producers, consumers;
  for (int i = 0; i < 6; ++i) producers.push_back(put.start({Tensor::scalar(float(i))}));
  BOOST_TEST(!producers.back().is_done());
  std::vector<float> seen;
  for (int i = 0; i < 6; ++i) seen.push_back(item(take({})));
  for (RunHandle& p : producers) p.get();
  std::sort(seen.begin(), seen.end());
  BOOST_TEST(seen == (std::vector<float>{0, 1, 2, 3, 4, 5}));
}

BOOST_DATA_TEST_CASE(cancel_answers_at_once_and_the_engine_goes_on,
                     boost::unit_test::data::make(kSettings), setting) {
  Graph g;
  Queue q = g.fifo_queue("empty", {{DType::f32, Shape{}}}, 2);
  Expr out = q.dequeue()[0] + 1.0;
  Expr x = g.input("x", DType::f32, Shape{});
  Expr in = q.enqueue({x});
  Engine engine(options_of(setting));
  Function take = engine.compile(g, {}, {out});
  RunHandle run = take.start({});
  run.cancel();
  Status status = run.wait();
  BOOST_TEST((status.code() == Code::cancelled));
  // The cancelled dequeue is gone: the next element goes to the next run.
  engine.run(g, {{x, Tensor::scalar(4.f)}}, {in});
  BOOST_TEST(item(take({})) == 5.f);
}

BOOST_AUTO_TEST_CASE(a_timeout_ends_a_run_on_the_virtual_clock) {
  EngineOptions o;
  o.deterministic = true;
  Graph g;
  Queue q = g.fifo_queue("empty", {{DType::f32, Shape{}}}, 2);
  Expr out = q.dequeue()[0];
  Expr x = g.input("x", DType::f32, Shape{});
  Expr in = q.enqueue({x});
  Engine engine(o);
  Function take = engine.compile(g, {}, {out});
  RunOptions soon;
  soon.timeout = 100ms;
  RunHandle run = take.start({}, soon);
  while (engine.take_step()) {}
  engine.advance_time(99ms);
  while (engine.take_step()) {}
  BOOST_TEST(!run.is_done());
  engine.advance_time(1ms);
  while (engine.take_step()) {}
  BOOST_REQUIRE(run.is_done());
  BOOST_TEST((run.wait().code() == Code::deadline_exceeded));
  engine.run(g, {{x, Tensor::scalar(4.f)}}, {in});
  BOOST_TEST(item(take({})) == 4.f);
}

BOOST_AUTO_TEST_CASE(a_timeout_on_the_real_clock) {
  Graph g;
  Queue q = g.fifo_queue("empty", {{DType::f32, Shape{}}}, 2);
  Engine engine;
  Function take = engine.compile(g, {}, {q.dequeue()[0]});
  RunOptions soon;
  soon.timeout = 20ms;
  BOOST_CHECK_EXCEPTION(take({}, soon), Error,
                        [](const Error& e) { return e.code() == Code::deadline_exceeded; });
}

// On one worker, which the actor does not give back: only the clock can end the run.
BOOST_AUTO_TEST_CASE(a_time_out_is_met_while_an_actor_holds_the_only_worker) {
  std::promise<void> gate;
  Graph g;
  Expr y = actor_node(
      g, "held", {}, {{DType::f32, Shape{}}},
      [opened = gate.get_future().share()](std::span<const Tensor>, std::span<Tensor> out) {
        opened.wait();
        out[0] = Tensor::scalar(1.f);
      })[0];
  Engine engine({.workers = 1});
  Function f = engine.compile(g, {}, {y});
  const std::string why = refusal([&] { f({}, {.timeout = 20ms}); }, Code::deadline_exceeded);
  BOOST_TEST(why.find("the run's time-out has passed") != std::string::npos, why);
  RunHandle unwatched = f.start({}, {.timeout = 20ms});
  while (!unwatched.is_done()) std::this_thread::yield();
  BOOST_TEST((unwatched.wait().code() == Code::deadline_exceeded));
  gate.set_value();
  BOOST_TEST(item(f({}, {.timeout = std::chrono::nanoseconds::max()})) == 1.f);
}

// It would hold the worker that its run needs; two of them, both of two.
BOOST_AUTO_TEST_CASE(an_actor_waits_for_a_run_only_where_it_blocks) {
  for (const int workers : {1, 2}) {
    Graph inner, g;
    Engine engine({.workers = workers});
    Expr two = inner.constant(2.f) + inner.random_uniform(Shape{}) * 0.f;
    auto asks = [&](const std::string& name, bool starts, bool blocks) {
      return actor_node(
          g, name, {}, {{DType::f32, Shape{}}},
          [&engine, &inner, two, starts](std::span<const Tensor>, std::span<Tensor> out) {
            out[0] =
                starts ? engine.start(inner, {}, {two}).get()[0] : engine.run(inner, {}, {two})[0];
          },
          {.blocks = blocks})[0];
    };
    const std::string why = refusal([&] { engine.run(g, {}, {asks("runs", false, false)}); },
                                    Code::failed_precondition);
    for (const char* part :
         {"actor 'runs'", "declare it with ActorOptions::blocks", "engine_test.cpp:"})
      BOOST_TEST(why.find(part) != std::string::npos, why);
    // with two the other may have ended it
    if (workers == 1)
      refusal([&] { engine.run(g, {}, {asks("starts", true, false)}); }, Code::failed_precondition);
    BOOST_TEST(item(engine.run(g, {}, {asks("blocks", false, true)})) == 2.f);
    BOOST_TEST(item(engine.run(g, {}, {asks("blocks, starts", true, true)})) == 2.f);
  }
}

BOOST_AUTO_TEST_CASE(a_handle_without_a_run_is_refused) {
  Graph g;
  Engine engine;
  RunHandle run = engine.start(g, {}, {g.constant(1.f)});
  RunHandle moved = std::move(run), empty;
  for (RunHandle* handle : {&run, &empty})
    for (const std::string& why :
         {refusal([&] { handle->wait(); }, Code::failed_precondition),
          refusal([&] { handle->get(); }, Code::failed_precondition),
          refusal([&] { handle->cancel(); }, Code::failed_precondition),
          refusal([&] { (void)handle->is_done(); }, Code::failed_precondition)})
      BOOST_TEST(why.find("holds no run") != std::string::npos, why);
  BOOST_TEST(item(moved.get()) == 1.f);
  const std::string why = refusal([&] { moved.get(); }, Code::failed_precondition);
  BOOST_TEST(why.find("an earlier call of get() took") != std::string::npos, why);
  BOOST_TEST(moved.wait().ok());
  refusal([] { (void)Function().loops(); }, Code::failed_precondition);
}

BOOST_AUTO_TEST_CASE(options_out_of_range_are_refused) {
  const auto says = [](const std::string& why, const char* part) {
    BOOST_TEST(why.find(part) != std::string::npos, why);
  };
  for (const int workers : {-3, 4097})
    says(refusal([&] { Engine engine({.workers = workers}); }, Code::invalid_argument),
         "workers must be 1 to 4096");
  Graph g;
  Expr y = g.constant(1.f);
  Engine engine;
  says(refusal(
           [&] {
             engine.compile(g, {}, {y}, {.skip_passes = {"simplify", "bogus"}});
           },
           Code::invalid_argument),
       "no pass 'bogus' that can be skipped; there are drop_unused_outputs, ");
  says(refusal([&] { engine.run(g, {}, {y}, {.timeout = -1ms}); }, Code::invalid_argument),
       "must not be negative");
  says(refusal([&] { engine.run(g, {}, {y}, {.trace = "/nonexistent/x.json"}); },
               Code::invalid_argument),
       "'/nonexistent/x.json' cannot be written: its folder is not there");
  says(refusal([&] { engine.run(g, {}, {y}, {.trace = "/"}); }, Code::invalid_argument),
       "'/' cannot be written: it is a folder");
  EngineOptions negative;
  negative.costs.between_nodes.latency_ns = -1;
  says(refusal([&] { Engine refused(negative); }, Code::invalid_argument),
       "latency_ns must not be negative, and is -1");
}

BOOST_AUTO_TEST_CASE(limits_out_of_range_are_refused) {
  const auto refuses = [](const char* text, auto change) {
    EngineOptions o;
    change(o);
    const std::string why = refusal([&] { Engine refused(o); }, Code::invalid_argument);
    BOOST_TEST(why.find(text) != std::string::npos, why);
  };
  refuses("EngineOptions::call_depth must be at least 0, not -1",
          [](EngineOptions& o) { o.call_depth = -1; });  // F6
  refuses("EngineOptions::max_runs must be at least 1, not 0",
          [](EngineOptions& o) { o.max_runs = 0; });
  for (const int ahead : {-1, 65'537})
    refuses("EngineOptions::edges.ahead must be 0 to 65,536, not ",
            [&](EngineOptions& o) { o.edges.ahead = ahead; });
  for (const double level : {-0.5, double(NAN)}) {
    refuses("EngineOptions::swap.fill_level must be at least 0, not ",
            [&](EngineOptions& o) { o.swap.fill_level = level; });
    refuses("EngineOptions::swap.keep_level must be at least 0, not ",
            [&](EngineOptions& o) { o.swap.keep_level = level; });
    refuses("EngineOptions::sim.speed.launch_ns must be at least 0, not ",
            [&](EngineOptions& o) { o.sim.speed.launch_ns = level; });
  }
  refuses("EngineOptions::swap.prefetch must be at least 0, not -1",
          [](EngineOptions& o) { o.swap.prefetch = -1; });
  refuses("EngineOptions::sim.speed.flops_per_ns must be above 0, not 0",
          [](EngineOptions& o) { o.sim.speed.flops_per_ns = 0; });
}

// The cache of `run` is bounded in bytes, too: unbounded, it would keep 450 MB here.
BOOST_AUTO_TEST_CASE(plans_with_large_constants_are_not_kept_for_long) {
  Engine engine;
  const Tensor large = Tensor::empty(DType::f32, {(90 << 20) / 4});
  for (int k = 0; k < 5; ++k) {
    Graph g;
    Expr i = g.input("i", DType::i32, {});
    engine.run(g, {{i, Tensor::scalar<std::int32_t>(k)}}, {gather(g.constant(large), i)});
  }
  BOOST_TEST(engine.impl().plans().size() == 3u);
}

BOOST_AUTO_TEST_CASE(a_feed_of_an_inner_edge_is_called_by_its_op) {
  Graph g, other;
  Expr x = g.input("x", DType::f32, {3});
  const unsigned line = __LINE__ + 1;
  Expr b = x + 1.0;
  std::vector<Expr> parts = split(x, {1, 2});
  Engine engine;
  const auto says = [](const std::string& why, const std::string& part) {
    BOOST_TEST(why.find(part) != std::string::npos, why);
  };
  const Tensor wrong = Tensor::of<float>({1, 2, 3, 4});
  const std::string at = "(engine_test.cpp:" + std::to_string(line);
  std::string why = refusal([&] { engine.run(g, {{b, wrong}}, {b * b}); }, Code::invalid_argument);
  says(why, "feed 'Add_"), says(why, at + ") must be f32[3], not f32[4]");
  why = refusal(
      [&] {
        engine.run(g, {{parts[1], wrong}}, {parts[1] * 2.0});
      },
      Code::invalid_argument);
  says(why, "feed 'Split_"), says(why, ":1' (engine_test.cpp:" + std::to_string(line + 1) +
                                           ") must be f32[2], not f32[4]");
  // An expression of another graph.
  why = refusal([&] { other.input("y", DType::f32, {3}), engine.compile(other, {b}, {}); },
                Code::invalid_argument);
  says(why, "feed 0, Add 'Add_"), says(why, at + "), is of another graph");
  says(refusal([&] { engine.compile(g, {Expr()}, {}); }, Code::invalid_argument),
       "feed 0 is an empty expression");
  Eager eager;
  says(refusal([&] { engine.compile(g, {}, {eager.constant(2.f)}); }, Code::invalid_argument),
       "fetch 0 is the f32[] that an eager scope computed");
}

BOOST_AUTO_TEST_CASE(an_engine_ends_with_runs_in_flight) {
  for (int i = 0; i < 20; ++i) {
    Graph g;
    Queue q = g.fifo_queue("empty", {{DType::f32, Shape{}}}, 2);
    Expr out = q.dequeue()[0];
    std::optional<Function> survivor;
    {
      Engine engine;
      survivor = engine.compile(g, {}, {out});
      for (int k = 0; k < 5; ++k) survivor->start({});
    }
    BOOST_CHECK_THROW(survivor->start({}), Error);
  }
}

BOOST_AUTO_TEST_CASE(several_threads_share_one_engine) {
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{});
  Expr y = square(x) + 1.0;
  Engine engine;
  Function f = engine.compile(g, {x}, {y});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        float v = float(t * 1000 + i) / 7;
        if (item(f({Tensor::scalar(v)}, {.timeout = std::chrono::hours(i % 2)})) != v * v + 1)
          ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  BOOST_TEST(wrong == 0);
}

// A graph cut over three devices: tokens and variables cross, and the order of effects holds.
BOOST_AUTO_TEST_CASE(a_graph_may_span_devices) {
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{kAny, 4});
  Variable w = [&] {
    auto there = g.on_device("sim:1");
    return g.variable("w", Tensor::of<float>({1, 2, 3, 4}));
  }();
  Expr hidden = [&] {
    auto there = g.on_device("sim:0");
    return tanh(x * 0.5);
  }();
  Expr y = [&] {
    auto there = g.on_device("sim:1");
    return hidden * w;
  }();
  Expr loss = sum(y), scalar_away = [&] {
    auto there = g.on_device("sim:0");
    return sum(hidden);
  }();
  Expr up = w.assign_add(1.0), after = sum(w.read());
  Tensor feed = Tensor::of<float>({1, 2, 3, 4, 5, 6, 7, 8}, Shape{2, 4});
  auto run = [&](bool optimize, Granularity granularity) {
    EngineOptions o;
    o.optimize = optimize;
    o.granularity = granularity;
    Engine engine(o);
    Function f = engine.compile(g, {x}, {y, loss, scalar_away, up, after, hidden});
    std::vector<std::vector<Tensor>> results;
    for (int i = 0; i < 5; ++i) results.push_back(f({feed}));
    return results;
  };
  auto results = run(true, Granularity::automatic);
  for (int i = 0; i < 5; ++i) {
    const auto& out = results[static_cast<std::size_t>(i)];
    double expected = 0;
    for (int k = 0; k < 8; ++k) expected += std::tanh(0.5 * (k + 1)) * (k % 4 + 1 + i);
    BOOST_TEST(out[1].item<float>() == float(expected), boost::test_tools::tolerance(1e-5f));
    BOOST_TEST(out[4].item<float>() == 14.f + 4 * float(i));
    BOOST_TEST(out[2].shape().text() == "[]");
    BOOST_TEST(out[5].at(0) == std::tanh(0.5), boost::test_tools::tolerance(1e-6));
  }
  for (bool optimize : {true, false})
    for (Granularity granularity : {Granularity::op, Granularity::partition}) {
      auto other = run(optimize, granularity);
      for (std::size_t i = 0; i < other.size(); ++i)
        for (std::size_t k = 0; k < other[i].size(); ++k)
          BOOST_TEST(identical(other[i][k], results[i][k]));
    }
}

BOOST_AUTO_TEST_CASE(a_device_s_memory_limit_fails_the_run_not_the_engine) {
  EngineOptions o;
  o.default_device = "sim:0";
  o.sim.memory_limit = 1 << 20;
  o.optimize = false;
  Graph g;
  Expr n = g.input("n", DType::f32, Shape{kAny});
  Expr big = matmul(expand_dims(n, 1), expand_dims(n, 0));
  Engine engine(o);
  Function f = engine.compile(g, {n}, {sum(big)});
  BOOST_CHECK_EXCEPTION(f({Tensor::zeros(DType::f32, Shape{2048})}), Error, [](const Error& e) {
    return e.code() == Code::resource_exhausted &&
           std::string(e.what()).find("MatMul") != std::string::npos;
  });
  BOOST_TEST(f({Tensor::of<float>({1, 2})})[0].item<float>() == 9.f);
}

// A value for the caller or for another device is sent as a copy on the host.
BOOST_AUTO_TEST_CASE(a_run_that_has_ended_holds_no_memory_of_a_device) {
  for (bool deterministic : {true, false}) {
    EngineOptions o;
    o.default_device = "sim:0";
    o.deterministic = deterministic;
    Graph g;
    Expr x = g.input("x", DType::f32, Shape{1024});
    Expr fetched = exp(x), sent = tanh(x), large = exp(x) * 2.0, far;
    {
      auto there = g.on_device("cpu:0");
      far = sent + 1.0;
    }
    Expr halved =
        while_loop([](Expr v) { return sum(v) > 1.0; }, [](Expr v) { return v * 0.5; }, large);
    Engine engine(o);
    Device& device = engine.device("sim:0");
    auto in_use = [&] {
      device.compute_stream()->synchronize();
      return device.allocator().counters().in_use;
    };
    for (const Expr& fetch : {fetched, far, halved}) {
      Function f = engine.compile(g, {x}, {fetch});
      const std::uint64_t before = in_use();
      for (int run = 0; run < 2; ++run) {
        f({Tensor::zeros(DType::f32, Shape{1024})});
        BOOST_TEST(in_use() == before, g.describe(fetch.edge().node)
                                           << ", deterministic: " << deterministic);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(random_draws_depend_on_seed_op_and_step_only) {
  Graph g;
  Expr a = g.random_normal({8}), b = g.random_normal({8});
  auto draw = [&](std::uint64_t seed, std::int64_t step, Granularity granularity, int workers,
                  bool optimized, const char* device = "") {
    EngineOptions o;
    o.default_device = device;
    o.seed = seed;
    o.granularity = granularity;
    o.workers = workers;
    o.optimize = optimized;
    Engine engine(o);
    RunOptions r;
    r.step = step;
    return engine.run(g, {}, {a, b, a * 2.0}, r);
  };
  auto first = draw(1, 5, Granularity::partition, 1, true);
  BOOST_TEST(!identical(first[0], first[1]));
  BOOST_TEST(identical(first[0], draw(1, 5, Granularity::op, 2, false)[0]));
  BOOST_TEST(identical(first[1], draw(1, 5, Granularity::automatic, 2, true)[1]));
  for (const int i : {0, 1, 2})
    BOOST_TEST(identical(
        first[static_cast<std::size_t>(i)],
        draw(1, 5, Granularity::automatic, 2, true, "sim:0")[static_cast<std::size_t>(i)]));
  BOOST_TEST(!identical(first[0], draw(2, 5, Granularity::partition, 1, true)[0]));
  BOOST_TEST(!identical(first[0], draw(1, 6, Granularity::partition, 1, true)[0]));
}

BOOST_AUTO_TEST_CASE(graphs_of_one_engine_share_variables_by_name) {
  Graph train, look;
  Variable w = train.variable("w", Tensor::scalar(3.f));
  Variable same = look.variable("w", Tensor::scalar(99.f));  // the first declaration made it
  Engine engine;
  Expr up = w.assign_add(1.0), seen = same.read();
  engine.run(train, {}, {up});
  BOOST_TEST(item(engine.run(look, {}, {seen})) == 4.f);
  Graph clash;
  Variable other = clash.variable("w", Tensor::of<float>({1, 2}));
  BOOST_CHECK_THROW(engine.run(clash, {}, {other.read()}), Error);
}

BOOST_AUTO_TEST_CASE(runs_in_flight_are_limited) {
  for (const bool stepped : {false, true}) {
    EngineOptions o;
    o.max_runs = 2;
    o.deterministic = stepped;
    Graph g;
    Queue q = g.fifo_queue("q", {{DType::f32, Shape{}}}, 4);
    Expr out = q.dequeue()[0];
    Expr one = g.constant(1.f) + 1.0;
    Engine engine(o);
    Function wait = engine.compile(g, {}, {out}), quick = engine.compile(g, {}, {one});
    RunHandle first = wait.start({}), second = wait.start({});
    const Code expected = stepped ? Code::failed_precondition : Code::deadline_exceeded;
    BOOST_CHECK_EXCEPTION(quick.start({}, {.timeout = std::chrono::milliseconds(stepped ? 0 : 20)}),
                          Error, [&](const Error& e) { return e.code() == expected; });
    first.cancel();
    BOOST_TEST(item(quick({})) == 2.f);
    second.cancel();
  }
  EngineOptions none;
  none.max_runs = 0;
  BOOST_CHECK_THROW(Engine{none}, Error);
}

BOOST_AUTO_TEST_CASE(callers_beyond_the_limit_take_turns) {
  EngineOptions o;
  o.max_runs = 2;
  o.workers = 2;
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{});
  Expr y = x * 2.0 + 1.0;
  Engine engine(o);
  Function f = engine.compile(g, {x}, {y});
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 6; ++c)
    callers.emplace_back([&, c] {
      for (int i = 0; i < 200; ++i) {
        const float v = static_cast<float>(c * 1000 + i);
        std::vector<Tensor> got =
            i % 2 == 0 ? f({Tensor::scalar(v)}) : f.start({Tensor::scalar(v)}).get();
        if (item(got) != 2 * v + 1) wrong.fetch_add(1);
      }
    });
  for (std::thread& t : callers) t.join();
  BOOST_TEST(wrong.load() == 0);
}

BOOST_AUTO_TEST_CASE(a_graph_may_grow_between_runs) {
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{});
  Expr y = x + 1.0;
  Engine engine;
  BOOST_TEST(item(engine.run(g, {{x, Tensor::scalar(1.f)}}, {y})) == 2.f);
  Expr z = y * y;
  BOOST_TEST(item(engine.run(g, {{x, Tensor::scalar(1.f)}}, {z})) == 4.f);
  BOOST_TEST(item(engine.run(g, {{x, Tensor::scalar(2.f)}}, {y})) == 3.f);
}

BOOST_AUTO_TEST_CASE(engine_refuses_undeclared_variables_and_negative_steps) {
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{});
  Engine engine;
  refusal([&] { engine.get(Variable()); }, Code::invalid_argument);
  refusal([&] { engine.set(Variable(), Tensor::scalar(1.f)); }, Code::invalid_argument);
  refusal([&] { engine.initialize(Variable()); }, Code::invalid_argument);
  const Function f = engine.compile(g, {x}, {x + 1.0});
  refusal([&] { f({Tensor::scalar(1.f)}, {.step = -2}); }, Code::invalid_argument);
  BOOST_TEST(item(f({Tensor::scalar(1.f)})) == 2.f);
  const Variable w = g.variable("w", Tensor::scalar(1.f));
  BOOST_TEST(refusal([&] { engine.set(w, Tensor()); }, Code::invalid_argument)
                 .find("variable 'w': it holds f32[], and cannot be set to nothing") !=
             std::string::npos);
  BOOST_TEST(
      refusal([&] { engine.set(w, Tensor::scalar(1.0)); }, Code::invalid_argument).find("f64[]") !=
      std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
