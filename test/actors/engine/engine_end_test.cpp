// How runs and engines come to an end when something goes wrong around them. Each of these would
// hang, not fail, if it went wrong.
#include <troupe/actors/engine/engine.hpp>

#include <atomic>
#include <future>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/actor_node.hpp>
#include <troupe/test/support/refusal.hpp>

using namespace troupe;
using troupe::test::refusal;

BOOST_AUTO_TEST_SUITE(engine_end_test)

// The actor starts a run when it has heard of the end, which waits for the actor.
BOOST_AUTO_TEST_CASE(no_run_begins_while_the_engine_is_shutting_down) {
  for (int max_runs : {256, 2}) {  // with room, and where it would have to wait for some
    Graph g;
    Queue q = g.fifo_queue("empty", {{DType::i64, Shape{}}}, 1);
    Expr taken = q.dequeue()[0];
    Engine* own = nullptr;
    std::promise<void> begun;
    Status first;
    std::string then;
    Expr starts = actor_node(g, "starter", {}, {{DType::i64, Shape{}}},
                             [&](std::span<const Tensor>, std::span<Tensor> out) {
                               RunHandle waiting = own->start(g, {}, {taken});
                               begun.set_value();
                               first = waiting.wait();
                               try {
                                 own->start(g, {}, {taken});
                               } catch (const Error& e) { then = e.what(); }
                               out[0] = Tensor::scalar(std::int64_t{0});
                             },
                             {.blocks = true})[0];
    {
      EngineOptions options;
      options.max_runs = max_runs;
      Engine engine(options);
      own = &engine;
      RunHandle run = engine.start(g, {}, {starts});
      begun.get_future().wait();
    }
    BOOST_TEST((first.code() == Code::cancelled));
    BOOST_TEST(then == "the engine is shutting down");
  }
}

BOOST_AUTO_TEST_CASE(a_log_that_throws_holds_nothing_up) {
  for (bool deterministic : {false, true}) {
    Graph g;
    Expr table = g.constant(Tensor::of<float>({1, 2, 3})),
         index = g.input("index", DType::i64, Shape{kAny});
    std::atomic<int> lines{0};
    EngineOptions options;
    options.deterministic = deterministic;
    // cannot be written, which is logged from a partition's turn
    options.flight = "/proc/no-such-folder";
    options.log = [&](const LogRecord&) {
      ++lines;
      throw std::runtime_error("the log is full");
    };
    {
      Engine engine(options);
      const Function f = engine.compile(g, {index}, {gather(table, index)});
      for (int i = 0; i < 3; ++i) {
        BOOST_TEST(
            refusal([&] { f({Tensor::of<std::int64_t>({7})}); }, Code::out_of_range).find("7") !=
            std::string::npos);
        BOOST_TEST(f({Tensor::of<std::int64_t>({1})})[0].at(0) == 2);
      }
    }
    BOOST_TEST(lines.load() >= 3);
  }
}

BOOST_AUTO_TEST_CASE(a_caller_gets_its_answer_though_messages_to_others_fail) {
  Ref<Run> run(new Run(1, 0, 0, std::make_shared<const Plan>(), {}, 1));
  int told = 0;
  run->on_failed = [&](Run& failed) {
    ++told;
    BOOST_TEST(!failed.is_settled());  // its caller hears of it last
    BOOST_TEST(failed.is_poisoned());
    BOOST_TEST(failed.status().message() == "over");
    throw std::bad_alloc();
  };
  BOOST_TEST(run->fail(Status(Code::aborted, "over")));
  BOOST_TEST(!run->fail(Status(Code::aborted, "over again")));
  run->wait();
  BOOST_TEST(told == 1);
  BOOST_TEST(run->status().message() == "over");
  run->leave();
}

// A copy to the host may still be under way in the stream when its run is given up; ASan sees where
// it is written.
BOOST_AUTO_TEST_CASE(failed_run_keeps_its_fetch_until_the_device_has_written_it) {
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{kAny}), index = g.input("index", DType::i64, Shape{kAny});
  EngineOptions options;
  options.default_device = "sim:0";
  Engine engine(options);
  const Function f = engine.compile(g, {x, index}, {x * 2.0, exp(x), gather(x, index)});
  const Tensor some = Tensor::zeros(DType::f32, Shape{20'000});
  for (int i = 0; i < 30; ++i) {
    refusal([&] { f({some, Tensor::of<std::int64_t>({20'000})}); }, Code::out_of_range);
    f.start({some, Tensor::of<std::int64_t>({1})}).cancel();
  }
  BOOST_TEST(f({some, Tensor::of<std::int64_t>({1})})[1].at(7) == 1);
}

BOOST_AUTO_TEST_CASE(a_device_is_named_by_a_kind_and_a_number) {
  Engine engine;
  for (const char* name : {"sim:", "sim:abc", "sim:1x", "sim:-1", "sim:12345678901", "sim:012",
                           "cpu:", "cpu:100", "cpu:07", "cpu:1x", "cpu"})
    BOOST_TEST(refusal([&] { engine.device(name); }, Code::not_found).find(name) !=
               std::string::npos);
  for (const char* name : {"sim:12", "sim:123456789", "cpu:0", "cpu:99"})
    BOOST_TEST(engine.device(name).name() == name);
}

BOOST_AUTO_TEST_SUITE_END()
