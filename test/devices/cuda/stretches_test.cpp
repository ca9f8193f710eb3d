// Repeated stretches of launches over the fake runtime: what is replayed, what falls back, and that
// no bit differs.
#include <boost/test/unit_test.hpp>

#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/autodiff/adam.hpp>
#include <troupe/autodiff/gradients.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/devices/cuda/stream.hpp>
#include <troupe/devices/device/registry.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/support/cuda/fake_cuda.hpp>
#include <troupe/test/support/on_device.hpp>
#include <troupe/test/support/share.hpp>
#include <troupe/test/support/temp_directory.hpp>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::int64_t kElements = 1000;

struct HeldGpu {
  HeldGpu() {
    fake_cuda::reset({.seed = 3, .max_delay_us = 20});
    device = make_device("gpu:0", {.seed = 1});
    stream = device->compute_stream();
  }
  ~HeldGpu() {
    stream.reset();
    device.reset();
    for (const std::string& v : fake_cuda::report().violations) BOOST_ERROR("violation: " << v);
    BOOST_TEST(fake_cuda::report().live_graphs == 0u);
    BOOST_TEST(fake_cuda::report().live_streams == 0u);
    fake_cuda::reset();
  }

  Tensor make() { return device->empty(DType::f32, Shape{kElements}); }
  void fill(Tensor& t, float value) {
    device->primitives().fill(*stream, Tensor::scalar(value), View(t));
  }
  void add_one(Tensor& t) {
    const ConstView in[] = {t};
    const View out[] = {View(t)};
    device->primitives().pointwise(*stream, program, in, out);
  }
  /// t = value + 4, in five launches.
  void work(Tensor& t, float value) {
    fill(t, value);
    for (int i = 0; i < 4; ++i) add_one(t);
  }
  template <class F>
  void hold(F calls) {
    stream->hold();
    calls();
    stream->flush();
  }
  float read(const Tensor& t) { return static_cast<float>(fetch(*device, *stream, t).at(7)); }
  QueueActivity queue() { return device->counters().queues[0]; }
  cuda::Stretches& stretches() { return *cuda::CudaStream::of(*stream).queue().stretches(); }
  static std::uint64_t calls() {
    return fake_cuda::report().launches + fake_cuda::report().host_work;
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  const ScalarProgram program = increment();
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(cuda_stretches_test, HeldGpu)

BOOST_AUTO_TEST_CASE(a_stretch_is_one_launch_from_its_second_run_on) {
  Tensor t = make();
  for (int run = 0; run < 4; ++run) {
    const std::uint64_t before = calls();
    hold([&] { work(t, 1); });
    BOOST_TEST(calls() - before == (run == 0 ? 5u : 0u));
    BOOST_TEST(fake_cuda::report().graph_launches == static_cast<std::uint64_t>(run));
    BOOST_TEST(read(t) == 5);
  }
  BOOST_TEST(fake_cuda::report().captured == 5u);
  const QueueActivity now = queue();
  BOOST_TEST(now.launches == 20u);
  BOOST_TEST(now.graphs == 3u);
  BOOST_TEST(now.replayed == 15u);
  BOOST_TEST(stretches().counters().captured == 1u);
}

BOOST_AUTO_TEST_CASE(work_outside_of_a_hold_is_made_at_once) {
  Tensor t = make();
  for (int run = 0; run < 3; ++run) work(t, 1);
  BOOST_TEST(calls() == 15u);
  BOOST_TEST(read(t) == 5);
  BOOST_TEST(queue().graphs == 0u);
}

BOOST_AUTO_TEST_CASE(a_value_that_differs_each_time_cuts_a_stretch) {
  Tensor a = make(), b = make(), c = make();
  for (int run = 0; run < 5; ++run) {
    hold([&] {
      work(a, 1);
      fill(b, static_cast<float>(run));  // the number of the step, say
      work(c, 2);
    });
    BOOST_TEST(read(a) == 5);
    BOOST_TEST(read(b) == run);
    BOOST_TEST(read(c) == 6);
  }
  // Two graphs a run, from the second or third on: all but the one launch between.
  const QueueActivity now = queue();
  BOOST_TEST(now.launches == 55u);
  BOOST_TEST(now.graphs >= 5u);
  BOOST_TEST(now.replayed == 5 * now.graphs);
  BOOST_TEST(stretches().counters().captured == 2u);
}

BOOST_AUTO_TEST_CASE(other_addresses_and_shapes_are_made_as_they_are) {
  Tensor a = make(), b = make();
  hold([&] { work(a, 1); });
  hold([&] { work(a, 1); });
  const std::uint64_t before = calls();
  hold([&] { work(b, 2); });
  BOOST_TEST(calls() - before == 5u);
  Tensor small = device->empty(DType::f32, Shape{10});
  hold([&] { work(small, 3); });
  BOOST_TEST(calls() - before == 10u);
  // Each has its graph now; the patterns may alternate.
  for (int i = 0; i < 2; ++i) {
    hold([&] { work(b, 4 - static_cast<float>(2 * i)); });
    hold([&] { work(a, 1); });
  }
  BOOST_TEST(read(a) == 5);
  BOOST_TEST(read(b) == 6);
  BOOST_TEST(read(small) == 7);
}

BOOST_AUTO_TEST_CASE(a_stretch_that_ends_early_is_made_as_it_is) {
  Tensor t = make();
  hold([&] { work(t, 1); });
  hold([&] { work(t, 1); });
  const std::uint64_t before = calls();
  hold([&] {
    fill(t, 1);
    add_one(t);
  });
  BOOST_TEST(calls() - before == 2u);
  BOOST_TEST(read(t) == 2);
  // It goes on otherwise: the held part is made, and what follows too.
  hold([&] {
    fill(t, 1);
    add_one(t);
    fill(t, 9);
  });
  BOOST_TEST(calls() - before == 5u);
  BOOST_TEST(read(t) == 9);
}

BOOST_AUTO_TEST_CASE(copies_and_points_lie_behind_what_is_held) {
  Tensor t = make(), host = Tensor::of(std::vector<float>(kElements, 100), Shape{kElements});
  for (int run = 0; run < 3; ++run) {
    Tensor seen = Tensor::empty(DType::f32, Shape{kElements});
    std::shared_ptr<Event> event;
    hold([&] {
      work(t, 1);
      device->copy_to_host(*stream, t, View(seen));
      device->copy_from_host(*stream, host, View(t));
      for (int i = 0; i < 4; ++i) add_one(t);
      event = stream->record();
    });
    stream->synchronize();
    BOOST_TEST(event->is_done());
    BOOST_TEST(seen.at(3) == 5);
    BOOST_TEST(read(t) == 104);
  }
  BOOST_TEST(queue().graphs == 4u);
}

BOOST_AUTO_TEST_CASE(memory_that_is_reused_in_a_stretch_is_replayed_in_order) {
  for (int run = 0; run < 4; ++run) {
    Tensor last;
    hold([&] {
      Tensor a = make();
      work(a, 1);
      a.reset();
      Tensor b = make();  // in a's block
      work(b, 2);
      last = std::move(b);
    });
    BOOST_TEST(read(last) == 6);
  }
  if (kBlocksServeAgain) BOOST_TEST(queue().graphs >= 2u);
}

BOOST_AUTO_TEST_CASE(failures_of_captures_and_launches_fall_back) {
  const struct {
    const char* call;
    int after;
  } faults[] = {{"cudaStreamCreateWithFlags", 0}, {"cudaStreamBeginCapture", 0},
                {"cudaStreamEndCapture", 0},      {"cudaGraphInstantiate", 0},
                {"cudaGraphLaunch", 0},           {"cudaLaunchKernel", 0},
                {"a scalar program", 2}};
  for (const auto& [call, after] : faults) {
    BOOST_TEST_CONTEXT(call) {
      stream.reset();
      device.reset();
      fake_cuda::reset({.seed = 5});
      device = make_device("gpu:0", {.seed = 1});
      stream = device->compute_stream();
      Tensor t = make();
      hold([&] { work(t, 1); });
      fake_cuda::fail(call, cudaErrorUnknown, after);
      const std::uint64_t before = calls();
      for (int run = 0; run < 3; ++run) {
        hold([&] { work(t, 1); });
        BOOST_TEST(read(t) == 5);
      }
      BOOST_TEST(calls() - before == 15u);
      BOOST_TEST(queue().graphs == 0u);
      BOOST_TEST(stretches().counters().failed == 1u);
      // Other stretches are not concerned, unless the stream still captures.
      for (int run = 0; run < 2; ++run) hold([&] { work(t, 2); });
      BOOST_TEST(read(t) == 6);
      BOOST_TEST(queue().graphs == 1u);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_held_launch_that_is_refused_fails_its_run) {
  Tensor t = make();
  hold([&] { work(t, 1); });
  // In the capture, and again when the calls are made.
  fake_cuda::fail("cudaLaunchKernel", cudaErrorInvalidConfiguration, 0);
  fake_cuda::fail("cudaLaunchKernel", cudaErrorInvalidConfiguration, 1);
  const auto fault = std::make_shared<Fault>();
  stream->attribute(fault, 42);
  hold([&] { work(t, 1); });
  BOOST_TEST(fault->is_set());
  BOOST_TEST(fault->origin() == 42);
  BOOST_TEST(fault->status().message().find("cudaErrorInvalidConfiguration") != std::string::npos);
  // Without a fault the next event has the error.
  stream->attribute(nullptr, -1);
  fake_cuda::fail("cudaLaunchKernel", cudaErrorInvalidConfiguration, 0);
  hold([&] { work(t, 1); });
  BOOST_CHECK_THROW(stream->synchronize(), Error);
  hold([&] { work(t, 1); });
  BOOST_TEST(read(t) == 5);
}

BOOST_AUTO_TEST_CASE(an_index_outside_is_found_in_a_replay) {
  Tensor table = make(), indices = device->empty(DType::i64, Shape{2}),
         out = device->empty(DType::f32, Shape{2});
  fill(table, 1);
  const auto gather = [&](std::int64_t second) {
    device->copy_from_host(*stream, Tensor::of<std::int64_t>({0, second}, Shape{2}), View(indices));
    hold([&] {
      for (int i = 0; i < 3; ++i)
        device->primitives().gather(*stream, table, indices, 0, View(out));
    });
    stream->synchronize();
  };
  gather(1);
  gather(2);
  BOOST_TEST(queue().graphs == 1u);
  BOOST_CHECK_EXCEPTION(gather(kElements), Error,
                        [](const Error& e) { return e.code() == Code::out_of_range; });
  BOOST_TEST(queue().graphs == 2u);
  gather(3);
  BOOST_TEST(fetch(*device, *stream, out).at(1) == 1);
}

BOOST_AUTO_TEST_CASE(graphs_are_bounded_and_used_again) {
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < cuda::Stretches::kMostGraphs + 8; ++i) all.push_back(make());
  fake_cuda::fail("cudaGraphExecUpdate", cudaErrorGraphExecUpdateFailure);
  for (Tensor& t : all)
    for (int run = 0; run < 4; ++run) hold([&] { work(t, 1); });
  for (const Tensor& t : all) BOOST_TEST(read(t) == 5);
  const cuda::Stretches::Counters now = stretches().counters();
  BOOST_TEST(now.captured == all.size());
  BOOST_TEST(now.graphs == cuda::Stretches::kMostGraphs);
  // The first graph too many made room for the next one, whose update was refused.
  BOOST_TEST(now.updated == 6u);
  BOOST_TEST(fake_cuda::report().graph_updates == now.updated);
}

BOOST_AUTO_TEST_CASE(captures_that_do_not_pay_end) {
  std::vector<Tensor> all;
  for (int i = 0; i < 100; ++i) all.push_back(make());
  for (Tensor& t : all)
    for (int run = 0; run < 2; ++run) hold([&] { work(t, 1); });
  for (const Tensor& t : all) BOOST_TEST(read(t) == 5);
  BOOST_TEST(stretches().counters().captured == 64u);
}

BOOST_AUTO_TEST_CASE(threads_that_hold_one_stream_keep_their_order) {
  constexpr int kRuns = 50;
  Tensor a = make(), b = make();
  bool is_right[2] = {true, true};
  const auto run = [&](Tensor& t, float value, bool& right) {
    const auto mine = device->compute_stream();
    const ConstView in[] = {t};
    const View out[] = {View(t)};
    for (int i = 0; i < kRuns; ++i) {
      mine->hold();
      device->primitives().fill(*mine, Tensor::scalar(value), View(t));
      for (int k = 0; k < 4; ++k) device->primitives().pointwise(*mine, program, in, out);
      mine->flush();
      right = right && fetch(*device, *mine, t).at(5) == value + 4;
    }
  };
  std::thread other([&] { run(b, 2, is_right[1]); });
  run(a, 1, is_right[0]);
  other.join();
  BOOST_TEST(is_right[0]);
  BOOST_TEST(is_right[1]);
}

BOOST_AUTO_TEST_CASE(a_timed_graph_is_one_piece_of_work) {
  Tensor t = make();
  for (int run = 0; run < 2; ++run) hold([&] { work(t, 1); });
  auto& timed = dynamic_cast<TimedStream&>(*stream);
  timed.time(true);
  timed.label({.node = 3, .run = 8});
  hold([&] { work(t, 1); });
  stream->synchronize();
  const std::vector<TimedWork> done = timed.take_timed();
  BOOST_REQUIRE(done.size() == 1u);
  BOOST_TEST(done[0].name == std::string("graph"));
  BOOST_TEST(done[0].launches == 5);
  BOOST_TEST(done[0].label.run == 8u);
  BOOST_TEST(done[0].label.node == -1);
}

namespace {

// The results of some steps of a program, bit for bit, and how many launches were replayed.
struct Steps {
  std::vector<Tensor> results;
  QueueActivity queue;
  std::string explained;
};

using Program = std::function<void(Graph&, std::vector<Expr>& in, std::vector<Expr>& out,
                                   std::vector<Variable>& weights)>;

Steps steps_of(const Program& program, const std::vector<Tensor>& feeds, GpuOptions gpu,
               const std::string& trace = {}) {
  constexpr int kSteps = 20;
  EngineOptions options;
  options.seed = 3;
  options.default_device = "gpu:0";
  options.gpu = std::move(gpu);
  Engine engine(options);
  Graph g;
  std::vector<Expr> in, out;
  std::vector<Variable> weights;
  program(g, in, out, weights);
  const Function f = engine.compile(g, in, out);
  Steps all;
  for (int i = 0; i < kSteps; ++i) {
    RunOptions run;
    if (i + 1 == kSteps) run.trace = trace;
    all.results.push_back(f(feeds, run)[0]);
  }
  for (const Variable& w : weights) all.results.push_back(engine.get(w));
  all.queue = engine.device("gpu:0").counters().queues[0];
  all.explained = f.explain();
  return all;
}

void check_bits(const Program& program, const std::vector<Tensor>& feeds) {
  const Steps without = steps_of(program, feeds, {.graphs = false});
  BOOST_TEST(without.queue.graphs == 0u);
  std::uint64_t replayed = 0;
  for (const bool poisons : {false, true}) {
    const Steps with = steps_of(program, feeds, {.poisons = poisons});
    replayed += with.queue.replayed;
    BOOST_TEST_MESSAGE("of " << with.queue.launches << " launches " << with.queue.replayed
                             << " were replayed by " << with.queue.graphs);
    BOOST_TEST((with.explained.find("were replayed, by") != std::string::npos) ==
               (with.queue.graphs > 0));
    BOOST_REQUIRE(with.results.size() == without.results.size());
    for (std::size_t i = 0; i < with.results.size(); ++i)
      BOOST_TEST((with.results[i].bytes() == without.results[i].bytes() &&
                  std::memcmp(with.results[i].raw(), without.results[i].raw(),
                              with.results[i].bytes()) == 0),
                 "result " << i << " differs");
  }
  if (kBlocksServeAgain) BOOST_TEST(replayed > 0u);
}

void mlp(Graph& g, std::vector<Expr>& in, std::vector<Expr>& out, std::vector<Variable>& weights) {
  in = {g.input("x", DType::f32, {8, 6}), g.input("labels", DType::i64, {8})};
  weights = {g.variable("w1", DType::f32, {6, 16}, Initializer::glorot(6, 16, 1)),
             g.variable("b1", DType::f32, {16}, Initializer::constant(0)),
             g.variable("w2", DType::f32, {16, 5}, Initializer::glorot(16, 5, 2)),
             g.variable("b2", DType::f32, {5}, Initializer::constant(0))};
  const Expr hidden = relu(matmul(in[0], weights[0]) + weights[1]);
  const Expr loss = mean(cross_entropy(matmul(hidden, weights[2]) + weights[3], in[1]));
  out = {loss, Adam({.learning_rate = 0.01}).minimize(loss, weights)};
}

void rnn(Graph& g, std::vector<Expr>& in, std::vector<Expr>& out, std::vector<Variable>& weights) {
  in = {g.input("x", DType::f32, {5, 4, 3})};
  weights = {g.variable("wx", DType::f32, {3, 8}, Initializer::glorot(3, 8, 1)),
             g.variable("wh", DType::f32, {8, 8}, Initializer::glorot(8, 8, 2))};
  const Expr states =
      scan([&](Expr h, Expr x) { return tanh(matmul(x, weights[0]) + matmul(h, weights[1])); },
           in[0], g.zeros(DType::f32, {4, 8}), {.name = "time"});
  const Expr loss = mean(square(states));
  out = {loss, Sgd({.learning_rate = 0.1}).minimize(loss, weights)};
}

Tensor ramp(const Shape& shape) {
  Tensor t = Tensor::empty(DType::f32, shape);
  for (std::int64_t i = 0; i < t.elements(); ++i)
    t.mutable_data<float>()[i] = 0.1f * static_cast<float>(i % 17) - 0.7f;
  return t;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_step_of_an_mlp_has_equal_bits_with_graphs) {
  check_bits(mlp,
             {ramp(Shape{8, 6}), Tensor::of<std::int64_t>({0, 1, 2, 3, 4, 0, 1, 2}, Shape{8})});
}

BOOST_AUTO_TEST_CASE(a_step_of_an_rnn_has_equal_bits_with_graphs) {
  check_bits(rnn, {ramp(Shape{5, 4, 3})});
}

BOOST_AUTO_TEST_CASE(a_trace_shows_graphs_and_their_launches) {
  const Folder folder;
  steps_of(mlp, {ramp(Shape{8, 6}), Tensor::of<std::int64_t>({0, 1, 2, 3, 4, 0, 1, 2}, Shape{8})},
           {}, folder / "trace.json");
  const auto trace = nlohmann::json::parse(read_file(folder / "trace.json"), nullptr, false);
  BOOST_REQUIRE(!trace.is_discarded());
  std::int64_t launches = 0;
  for (const auto& e : trace["traceEvents"])
    if (e.value("cat", "") == "kernel" && e.value("name", "").starts_with("a graph of "))
      launches += e["args"].value("launches", 0);
  if (kBlocksServeAgain) BOOST_TEST(launches >= 3);
}

BOOST_AUTO_TEST_SUITE_END()
