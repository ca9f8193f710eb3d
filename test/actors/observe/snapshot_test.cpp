// Diagnoses of runs that hang: the culprit, its place, its iteration, and the user's line. Each
// hang is made on purpose.
#include <boost/test/unit_test.hpp>

#include <condition_variable>
#include <mutex>

#include <troupe/ops/graph/actor_node.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/test/support/share.hpp>
#include <troupe/test/support/stepped_run.hpp>
#include <troupe/test/support/text.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(snapshot_test)

namespace {

using namespace std::chrono_literals;

// Runs until everything that can happen has, and tells what the engine then says.
std::vector<std::string> verdicts(Engine& engine, std::uint64_t most_steps = ~0ull) {
  for (std::uint64_t i = 0; i < most_steps && engine.take_step(); ++i) {}
  return diagnose(engine.snapshot());
}

// Holds a user's actor in its own code.
struct Stuck : NodeActor {
  static std::mutex mutex;  // guards the two
  static std::condition_variable changed;
  static bool is_in, may_go;
  void receive(std::span<const Tensor>, std::span<Tensor> out) override {
    std::unique_lock lock(mutex);
    is_in = true;
    changed.notify_all();
    changed.wait(lock, [] { return may_go; });
    out[0] = Tensor::scalar(std::int64_t{1});
  }
};
std::mutex Stuck::mutex;
std::condition_variable Stuck::changed;
bool Stuck::is_in = false, Stuck::may_go = false;

constexpr std::int64_t kSide = kShare == 1 ? 1024 : 256;  // rows of matrices in long products

}  // namespace

BOOST_AUTO_TEST_CASE(an_idle_engine_reports_no_run) {
  Engine engine({.workers = 2});
  const EngineSnapshot s = engine.snapshot();
  BOOST_TEST(s.runs.empty());
  BOOST_TEST(s.workers == 2);
  BOOST_TEST(diagnose(s).empty());
  BOOST_TEST(has(s.text(), "2 workers, 0 runs in flight\n"), s.text());
}

BOOST_AUTO_TEST_CASE(a_dequeue_from_a_queue_without_producer) {
  Graph g;
  Queue q = g.fifo_queue("empty", {{DType::f32, Shape{}}}, 2);
  Expr taken = g.named(q.dequeue()[0], "take");
  Expr y = taken * 2.0 + 1.0;
  SteppedRun of(g, {y}, {.timeout = 1s});
  const std::vector<std::string> said = verdicts(of.engine);
  BOOST_REQUIRE(said.size() == 1u);
  for (const char* part :
       {"Dequeue", "take", "snapshot_test.cpp:", "on cpu:0 has waited", "at queue 'empty'"})
    BOOST_TEST(has(said[0], part), said[0]);
  of.engine.advance_time(2s);
  const std::string error = of.run.wait().message();
  for (const char* part :
       {"the run's time-out has passed: ", "take", "snapshot_test.cpp:", "queue 'empty'"})
    BOOST_TEST(has(error, part), error);
  BOOST_TEST(!has(error, " ms"), error);  // how long that took outside of virtual time
}

// The other devices wait for the one that is stuck; only that one is named.
BOOST_AUTO_TEST_CASE(the_cause_is_named_and_not_the_nodes_that_wait_for_it) {
  Graph g;
  Expr taken, doubled;
  {
    auto there = g.on_device("cpu:2");
    taken = g.fifo_queue("empty", {{DType::f32, Shape{}}}, 2).dequeue()[0];
  }
  {
    auto there = g.on_device("cpu:1");
    doubled = taken * 2.0;
  }
  Expr y = doubled + 1.0;
  SteppedRun of(g, {y});
  for (std::uint64_t i = 0; i < 1000 && of.engine.take_step(); ++i) {}
  const EngineSnapshot s = of.engine.snapshot();
  const std::vector<std::string> said = diagnose(s);
  BOOST_REQUIRE(said.size() == 1u);
  BOOST_TEST(has(said[0], "Dequeue"), said[0]);
  for (const char* part :
       {"cpu:1 waits for ", "from cpu:2", "cpu:0 waits for ", "from cpu:1", "Mul"})
    BOOST_TEST(has(s.text(), part), s.text());
}

BOOST_AUTO_TEST_CASE(in_an_iteration_of_a_loop) {
  Graph g;
  Queue q = g.fifo_queue("numbers", {{DType::i64, Shape{}}}, 8);
  Expr x = g.input("x", DType::i64, Shape{});
  Expr put = q.enqueue({x});
  Expr last = while_loop([](Expr i) { return i < 100; }, [&](Expr i) { return i + q.dequeue()[0]; },
                         g.constant(std::int64_t{0}), {.name = "sums"});
  Engine engine({.deterministic = true});
  for (std::int64_t n : {1, 2, 3}) engine.run(g, {{x, Tensor::scalar(n)}}, {put});
  RunHandle run = engine.compile(g, {}, {last}).start({});
  const std::vector<std::string> said = verdicts(engine);
  BOOST_REQUIRE(said.size() == 1u);
  for (const char* part : {"Dequeue", "in iteration 3 of loop 'sums/1'", "queue 'numbers'"})
    BOOST_TEST(has(said[0], part), said[0]);
  run.cancel();
  while (engine.take_step()) {}
}

BOOST_AUTO_TEST_CASE(a_predicate_that_never_turns_false) {
  Graph g;
  Expr last = while_loop([](Expr i) { return i >= 0; }, [](Expr i) { return maximum(i, 1); },
                         g.constant(0), {.name = "forever"});
  SteppedRun of(g, {last}, {.timeout = 1s});
  const std::vector<std::string> early = verdicts(of.engine, 20), later = verdicts(of.engine, 20);
  BOOST_REQUIRE(early.size() == 1u);
  BOOST_REQUIRE(later.size() == 1u);
  for (const char* part : {"loop 'forever/1' on cpu:0 is in iteration ",
                           "and goes on: GreaterEqual", "snapshot_test.cpp:"})
    BOOST_TEST(has(early[0], part), early[0]);
  BOOST_TEST(early[0] != later[0]);  // it gets on
  of.engine.advance_time(2s);
  const std::string error = of.run.wait().message();
  BOOST_TEST(has(error, "loop 'forever/1'"), error);
}

BOOST_AUTO_TEST_CASE(a_user_s_actor_stuck_in_its_own_code) {
  Stuck::is_in = Stuck::may_go = false;
  Graph g;
  Expr y = actor_node<Stuck>(g, "oracle", {g.constant(std::int64_t{1})}, {{DType::i64, Shape{}}},
                             {.blocks = true})[0];
  {
    Engine engine({.workers = 2});
    RunHandle run = engine.compile(g, {}, {y}).start({});
    {
      std::unique_lock lock(Stuck::mutex);
      Stuck::changed.wait(lock, [] { return Stuck::is_in; });
    }
    const std::string said = joined(diagnose(engine.snapshot(10s)));
    for (const char* part : {"for an answer of actor 'oracle'", "snapshot_test.cpp:"})
      BOOST_TEST(has(said, part), said);
    {
      std::lock_guard lock(Stuck::mutex);
      Stuck::may_go = true;
      Stuck::changed.notify_all();
    }
    BOOST_TEST(run.get()[0].item<std::int64_t>() == 1);
  }
}

// The partition itself is in the kernel, and cannot answer: what it is at is known all the same.
BOOST_AUTO_TEST_CASE(a_kernel_that_takes_long) {
  Graph g;
  Expr x = g.input("x", DType::f32, {kAny, kAny});
  Expr y = x;
  for (int i = 0; i < 20; ++i) y = matmul(y, x);
  Engine engine({.workers = 1, .granularity = Granularity::partition});
  Function f = engine.compile(g, {x}, {y});
  RunHandle run = f.start({Tensor::zeros(DType::f32, {kSide, kSide})});
  // However the race goes: a snapshot of a run that computes names no queue, nor another device, as
  // its cause.
  const EngineSnapshot s = engine.snapshot(0s);
  for (const std::string& said : diagnose(s))
    BOOST_TEST((has(said, "MatMul") || has(said, "ready to fire") || has(said, "had its turn")),
               said);
  run.get();
  BOOST_TEST(diagnose(engine.snapshot()).empty());
}

// A request, or a token for the partition, waits for a few kernels, and not for a thousand.
BOOST_AUTO_TEST_CASE(a_partition_answers_between_long_kernels) {
  const Shape shape{kSide / 2, kSide / 2};
  Graph g;
  Expr m = g.input("m", DType::f32, shape);
  auto [n, last] = while_loop([](Expr i, Expr) { return i < 1'000'000; },
                              [&](Expr i, Expr v) {
                                return std::tuple{i + 1, matmul(v, m)};
                              },
                              std::tuple{g.constant(0), m}, {.parallel_iterations = 1});
  Engine engine({.workers = 1});
  RunHandle run = engine.compile(g, {m}, {last}).start({Tensor::zeros(DType::f32, shape)});
  const auto fired = [&] {
    for (;;) {
      const EngineSnapshot s = engine.snapshot(10s);
      if (s.runs.at(0).partitions.at(0).has_answered && s.runs[0].fired() > 0)
        return s.runs[0].fired();
    }
  };
  std::uint64_t least = ~0ull;  // from one turn to the next, or so
  for (int i = 0; i < 10; ++i) {
    const std::uint64_t before = fired(), now = fired();
    if (now > before) least = std::min(least, now - before);
  }
  BOOST_TEST(least < 500u);
  run.cancel();
}

BOOST_AUTO_TEST_CASE(a_time_out_over_all_workers) {
  Graph g;
  Queue q = g.fifo_queue("empty", {{DType::f32, Shape{}}}, 2);
  Expr y = q.dequeue()[0];
  Engine engine({.workers = 2});
  Function f = engine.compile(g, {}, {y});
  std::string error;
  // whose partition is not waited for long
  for (int tries = 0; tries < 100 && !has(error, "Dequeue"); ++tries)
    error = refusal([&] { f({}, {.timeout = 20ms}); }, Code::deadline_exceeded);
  for (const char* part : {"the run's time-out has passed: Dequeue", "queue 'empty'"})
    BOOST_TEST(has(error, part), error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
