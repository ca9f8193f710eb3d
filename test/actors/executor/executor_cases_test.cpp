// Programs with known results, of the executor: rows X of the cases that one process can show.
#include <atomic>
#include <cmath>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/test/tools/cancelled_op.hpp>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

std::atomic<int> times_read{0};

Expr bound(const char* op, const Expr& x) {
  return x.reader().bind(find_op(op), std::vector<Expr>{x}, {}, std::source_location::current())[0];
}

float item(const std::vector<Tensor>& out) { return out[0].item<float>(); }

EngineOptions two_workers() {
  EngineOptions o;
  o.workers = 2;
  return o;
}

}  // namespace

namespace troupe {

TROUPE_OP(TestFantasiaMeanwhile) {
  op.doc("Fails, once the other one is under way.");
  op.inputs(1);
  op.side_effect();
  op.infer([](Inference& c) { c.output(DType::f32, Shape{}); });
  op.run([](KernelContext&) {
    while (until_cancelled_began == 0) std::this_thread::yield();
    throw Error(Code::aborted, "fantasia!");
  });
}

TROUPE_OP(TestSaysAndStays) {
  op.doc(
      "Yields words of its own memory, which it writes over, and returns once they have been "
      "read.");
  op.inputs(1);
  op.side_effect();
  op.infer([](Inference& c) { c.output(DType::string, Shape{}); });
  op.run([](KernelContext& c) {
    // it grows alone: this kernel may still be under way when the next run has begun
    const int before = times_read;
    std::string own = "longer than what fits into a value";
    c.defer().fulfil(Tensor::of<StringRef>({{own.data(), own.size()}}, Shape{}));
    own.assign(own.size(), '?');
    times_read.wait(before);
  });
}

TROUPE_OP(TestReadsWords) {
  op.doc("Yields its input, and says that it has read it.");
  op.inputs(1);
  op.takes_strings();
  op.side_effect();
  op.infer([](Inference& c) { c.output(DType::string, Shape{}); });
  op.run([](KernelContext& c) {
    c.set(0, Tensor::string(c.input(0).to_strings()[0]));
    ++times_read;
    times_read.notify_all();
  });
}

TROUPE_OP(TestThrowsLate) {
  op.doc("Throws when it has taken its Completion.");
  op.inputs(1);
  op.side_effect();
  op.infer([](Inference& c) { c.output(DType::f32, Shape{}); });
  op.run([](KernelContext& c) {
    const Completion taken = c.defer();
    throw Error(Code::aborted, "too late!");
  });
}

}  // namespace troupe

BOOST_AUTO_TEST_SUITE(executor_cases)

BOOST_AUTO_TEST_CASE(self_add) {  // X1
  Graph g;
  Expr v = g.input("v", DType::f32, Shape{}), sum = v;
  for (int i = 0; i < 10; ++i) sum = sum + sum;
  BOOST_TEST(item(Engine(two_workers()).run(g, {{v, Tensor::scalar(1.f)}}, {sum})) == 1024.f);
}

BOOST_AUTO_TEST_CASE(random_tree) {  // X2
  for (const bool optimize : {true, false}) {
    Graph g;
    Expr a = g.input("a", DType::f32, Shape{});
    std::vector<Expr> nodes(4096, a);
    std::mt19937 choice(7);
    while (nodes.size() > 1) {
      for (int i = 0; i < 2; ++i)
        std::swap(nodes[choice() % (nodes.size() - static_cast<std::size_t>(i))],
                  nodes[nodes.size() - 1 - static_cast<std::size_t>(i)]);
      Expr sum = nodes[nodes.size() - 1] + nodes[nodes.size() - 2];
      nodes.pop_back();
      nodes.back() = sum;
    }
    EngineOptions o = two_workers();
    o.optimize = optimize;
    BOOST_TEST(item(Engine(o).run(g, {{a, Tensor::scalar(1.f)}}, {nodes[0]})) == 4096.f);
  }
}

BOOST_AUTO_TEST_CASE(abort_while_the_last_of_four_values_is_awaited) {  // X4
  for (const bool stepped : {false, true}) {
    Graph g;
    EngineOptions o = two_workers();
    o.deterministic = stepped;
    Engine engine(o);
    Expr x = g.input("x", DType::f32, Shape{});
    std::vector<Queue> queues;
    Expr sum;
    for (int i = 0; i < 4; ++i) {
      queues.push_back(g.fifo_queue("q" + std::to_string(i), {{DType::f32, Shape{}}}, 4));
      Expr value = queues.back().dequeue()[0];
      sum = sum.is_empty() ? value : sum + value;
    }
    Function wait = engine.compile(g, {}, {sum});
    auto put = [&](int i, float value) {
      engine.run(g, {{x, Tensor::scalar(value)}},
                 {queues[static_cast<std::size_t>(i)].enqueue({x})});
    };
    RunHandle run = wait.start({});
    for (int i = 0; i < 3; ++i) put(i, 1);
    run.cancel();
    BOOST_TEST((run.wait().code() == Code::cancelled));
    for (int i = 0; i < 4; ++i) put(i, 10);
    // The run that was cancelled took what had come for it, or left it: what is there now is in
    // order.
    float expected = 10;
    for (int i = 0; i < 3; ++i) {
      const auto left =
          engine.run(g, {}, {queues[static_cast<std::size_t>(i)].size()})[0].item<std::int64_t>();
      BOOST_TEST((left == 1 || left == 2));
      expected += left == 1 ? 10 : 1;
    }
    BOOST_TEST(item(wait({})) == expected);
  }
}

BOOST_AUTO_TEST_CASE(a_dequeue_from_an_empty_queue_times_out) {  // X6
  Graph g;
  Queue q = g.fifo_queue("empty", {{DType::f32, Shape{}}}, 2);
  Expr out = q.dequeue()[0], x = g.input("x", DType::f32, Shape{}), in = q.enqueue({x});
  Engine engine(two_workers());
  for (const auto timeout : {100ms, 20ms})
    BOOST_CHECK_EXCEPTION(engine.run(g, {}, {out}, {.timeout = timeout}), Error,
                          [](const Error& e) { return e.code() == Code::deadline_exceeded; });
  engine.run(g, {{x, Tensor::scalar(3.f)}}, {in});
  BOOST_TEST(item(engine.run(g, {}, {out})) == 3.f);
  // When a caller is notified that its run has ended, nothing of the run is waiting.
  for (int round = 0; round < 30; ++round) {
    BOOST_CHECK_EXCEPTION(engine.run(g, {}, {out}, {.timeout = 1ms}), Error,
                          [](const Error& e) { return e.code() == Code::deadline_exceeded; });
    engine.run(g, {{x, Tensor::scalar(4.f)}}, {in});
    BOOST_TEST(item(engine.run(g, {}, {out}, {.timeout = 60s})) == 4.f);
  }
}

BOOST_DATA_TEST_CASE(an_op_sees_that_its_run_has_timed_out, boost::unit_test::data::xrange(1, 3),
                     workers) {  // X7; it may hold the only worker
  until_cancelled_saw = until_cancelled_began = 0;
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{});
  Expr y = bound("TestUntilCancelled", x);
  {
    Engine engine({.workers = workers});
    // until it has begun in time
    for (auto timeout = 100ms; until_cancelled_began == 0; timeout *= 2)
      BOOST_CHECK_EXCEPTION(engine.run(g, {{x, Tensor::scalar(1.f)}}, {y}, {.timeout = timeout}),
                            Error,
                            [](const Error& e) { return e.code() == Code::deadline_exceeded; });
    until_cancelled_saw.wait(0);
    BOOST_TEST(item(engine.run(g, {{x, Tensor::scalar(1.f)}}, {x + 1.0})) == 2.f);
  }
  BOOST_TEST(until_cancelled_saw.load() >= 1);
}

BOOST_AUTO_TEST_CASE(run_reports_its_first_error_and_cancels_the_other_device) {  // X16
  until_cancelled_saw = until_cancelled_began = 0;
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{});
  Expr long_one, failing;
  {
    auto there = g.on_device("cpu:1");
    long_one = bound("TestUntilCancelled", x);
  }
  failing = bound("TestFantasiaMeanwhile", x);
  {
    Engine engine(two_workers());
    BOOST_CHECK_EXCEPTION(engine.run(g, {{x, Tensor::scalar(1.f)}}, {long_one, failing}), Error,
                          [](const Error& e) {
                            const std::string text = e.what();
                            return text.find("fantasia!") != std::string::npos &&
                                   text.find("TestFantasiaMeanwhile") != std::string::npos &&
                                   text.find("executor_cases_test.cpp") != std::string::npos;
                          });
  }
  BOOST_TEST(until_cancelled_saw.load() == 1);
}

BOOST_AUTO_TEST_CASE(an_exception_of_a_kernel_with_a_completion_is_reported) {
  for (const Granularity granularity :
       {Granularity::partition, Granularity::automatic, Granularity::op}) {
    Graph g;
    Expr x = g.input("x", DType::f32, Shape{});
    Expr y = bound("TestThrowsLate", x);
    EngineOptions options = two_workers();
    options.granularity = granularity;
    Engine engine(options);
    for (int i = 0; i < 3; ++i)
      BOOST_CHECK_EXCEPTION(
          engine.run(g, {{x, Tensor::scalar(1.f)}}, {y}), Error, [](const Error& e) {
            const std::string text = e.what();
            return e.code() == Code::aborted && text.find("too late!") != std::string::npos &&
                   text.find("TestThrowsLate") != std::string::npos;
          });
  }
}

// The firing ends with its Completion: its outputs are read, and its memory used again, while its
// kernel is still under way.
BOOST_AUTO_TEST_CASE(words_of_a_kernel_that_goes_on_are_its_firings_alone) {
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{});
  Expr read = bound("TestReadsWords", bound("TestSaysAndStays", x));
  EngineOptions options = two_workers();
  options.granularity = Granularity::op;
  Engine engine(options);
  for (int i = 0; i < 20; ++i)
    BOOST_TEST(engine.run(g, {{x, Tensor::scalar(1.f)}}, {read})[0].to_strings()[0] ==
               "longer than what fits into a value");
}

BOOST_AUTO_TEST_CASE(the_largest_eigenvalue_a_step_a_call) {  // X19
  Graph g;
  Expr a = g.constant(Tensor::of<float>({3, 2, -1, 0}, Shape{2, 2}));
  Variable x = g.variable("x", Tensor::of<float>({1, 0.5f}, Shape{2, 1}));
  Expr y = matmul(a, x);
  Expr value = sqrt(sum(square(y)) / sum(square(x.read())));
  Expr next = x.assign(y / sqrt(sum(square(y))));
  Engine engine(two_workers());
  Function step = engine.compile(g, {}, {value, next});
  float last = 0, now = 1;
  int steps = 0;
  for (; std::abs(now - last) >= 1e-10f && steps < 1000; ++steps) {
    last = now;
    now = item(step({}));
  }
  BOOST_TEST(steps < 1000);
  BOOST_TEST(std::abs(now - 2) < 0.01f);
}

BOOST_AUTO_TEST_SUITE_END()
