// The activity of a GPU's queues over the fake runtime: counts, times of work on the host's clock,
// and the trace of a run.
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <future>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/devices/cuda/stream.hpp>
#include <troupe/devices/device/activity.hpp>
#include <troupe/devices/device/registry.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/support/cuda/fake_cuda.hpp>
#include <troupe/test/support/on_device.hpp>
#include <troupe/test/support/temp_directory.hpp>

using namespace troupe;
using namespace troupe::test;

namespace {

std::int64_t steady_now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

struct MeasuredGpu {
  MeasuredGpu() {
    fake_cuda::reset({.seed = 3, .max_delay_us = 20});
    device = make_device("gpu:0", {.seed = 1});
    stream = device->compute_stream();
  }
  ~MeasuredGpu() {
    stream.reset();
    device.reset();
    for (const std::string& v : fake_cuda::report().violations) BOOST_ERROR("violation: " << v);
    BOOST_TEST(fake_cuda::report().live_events == 0u);
    fake_cuda::reset();
  }
  std::vector<QueueActivity> activity() const { return device->counters().queues; }
  TimedStream& timed() { return dynamic_cast<TimedStream&>(*stream); }
  void fill(Tensor& t, float value) {
    device->primitives().fill(*stream, Tensor::scalar(value), View(t));
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
};

// Work that keeps a stream busy until it is released.
class Hold {
 public:
  explicit Hold(Stream& stream) {
    fake_cuda::enqueue(
        cuda::CudaStream::of(stream).queue().stream(),
        [released = released_.get_future().share()] { released.wait(); }, "a hold");
  }
  ~Hold() { release(); }
  void release() {
    if (!std::exchange(is_released_, true)) released_.set_value();
  }

 private:
  std::promise<void> released_;
  bool is_released_ = false;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(cuda_activity_test, MeasuredGpu)

BOOST_AUTO_TEST_CASE(a_queue_counts_launches_and_copies_of_each_direction) {
  Tensor t = device->empty(DType::f32, Shape{1000});
  fill(t, 1);
  const ScalarProgram program = increment();
  const ConstView in[] = {t};
  const View out[] = {View(t)};
  for (int i = 0; i < 5; ++i) device->primitives().pointwise(*stream, program, in, out);
  device->copy_from_host(*stream, Tensor::zeros(DType::f32, Shape{1000}), View(t));
  const auto copies = device->copy_stream();
  copies->wait(stream->record());
  fetch(*device, *copies, t);
  const std::vector<QueueActivity> now = activity();
  BOOST_REQUIRE(now.size() >= 2u);  // the swapper has copy queues too
  const QueueActivity& last = now.back();
  BOOST_TEST(now[0].name == "compute");
  BOOST_TEST(now[0].launches == 6u);
  BOOST_TEST(now[0].to_device.count == 1u);
  BOOST_TEST(now[0].to_device.bytes == 4000u);
  BOOST_TEST(now[0].from_device.count == 0u);
  BOOST_TEST(now[1].name == "copy 0");
  BOOST_TEST(last.launches == 0u);
  BOOST_TEST(last.from_device.count == 1u);
  BOOST_TEST(last.from_device.bytes == 4000u);
}

BOOST_AUTO_TEST_CASE(depth_counts_open_work_and_busy_time_is_that_of_work) {
  Tensor t = device->empty(DType::f32, Shape{10});
  Hold hold(*stream);
  for (int i = 0; i < 3; ++i) fill(t, 1);
  const auto event = stream->record();
  const QueueActivity held = activity()[0];
  BOOST_TEST(held.depth == 3u);
  BOOST_TEST(held.enqueued == 3u);
  BOOST_TEST(held.events == 1u);
  BOOST_TEST(activity()[0].busy_ns > held.busy_ns);
  hold.release();
  stream->synchronize();
  BOOST_TEST(event->is_done());
  const QueueActivity idle = activity()[0];
  BOOST_TEST(idle.depth == 0u);
  BOOST_TEST(idle.enqueued == 3u);
  BOOST_TEST(idle.events == 0u);
  BOOST_TEST(idle.busy_ns > held.busy_ns);
  BOOST_TEST(activity()[0].busy_ns == idle.busy_ns);
}

BOOST_AUTO_TEST_CASE(memory_counts_what_is_in_use_reserved_and_free) {
  constexpr std::uint64_t kBytes = 1 << 20;
  const DeviceCounters before = device->counters();
  BOOST_TEST(before.in_use == 0u);
  BOOST_TEST(before.limit > 0u);
  BOOST_TEST(before.free == before.limit);
  {
    const Tensor t = device->empty(DType::f32, Shape{kBytes / 4});
    const DeviceCounters now = device->counters();
    BOOST_TEST(now.in_use == kBytes);
    BOOST_TEST(now.free == now.limit - kBytes);
    BOOST_TEST(now.reserved == kBytes);
  }
  const DeviceCounters after = device->counters();
  BOOST_TEST(after.in_use == 0u);
  BOOST_TEST(after.peak == kBytes);
#if !defined(__SANITIZE_ADDRESS__)  // under it no block is kept
  BOOST_TEST(after.reserved == kBytes);
#endif
  BOOST_TEST(after.free == after.limit);
}

BOOST_AUTO_TEST_CASE(peers_count_what_they_take) {
  stream.reset();
  device.reset();
  fake_cuda::reset({.seed = 5, .devices = 2});
  device = make_device("gpu:0", {.seed = 1});
  stream = device->compute_stream();
  const auto second = make_device("gpu:1", {.seed = 1});
  const auto to = second->compute_stream();
  Tensor source = device->empty(DType::f32, Shape{50}), copy = second->empty(DType::f32, Shape{50});
  fill(source, 4);
  BOOST_TEST(second->copy_from_peer(*to, source, *device, View(copy)));
  to->synchronize();
  const QueueActivity now = second->counters().queues[0];
  BOOST_TEST(now.from_peer.count == 1u);
  BOOST_TEST(now.from_peer.bytes == 200u);
}

BOOST_AUTO_TEST_CASE(timed_work_is_labelled_ordered_and_on_the_hosts_clock) {
  constexpr std::int64_t kRounding = 1000;  // ns of a float that counts milliseconds
  Tensor t = device->empty(DType::f32, Shape{1000});
  fill(t, 0);  // not timed
  timed().time(true);
  const std::int64_t error = timed().clock_error_ns() + kRounding, before = steady_now();
  timed().label({.node = 7, .run = 3, .tag = 11});
  fill(t, 1);
  timed().label({.node = 8, .run = 3, .tag = 12});
  const ScalarProgram program = increment();
  const ConstView in[] = {t};
  const View out[] = {View(t)};
  device->primitives().pointwise(*stream, program, in, out);
  fetch(*device, *stream, t);
  const std::int64_t after = steady_now();
  const std::vector<TimedWork> done = timed().take_timed();
  BOOST_REQUIRE(done.size() == 3u);
  BOOST_TEST(done[0].name == std::string("fill"));
  BOOST_TEST(done[0].label.node == 7);
  BOOST_TEST(done[0].label.run == 3u);
  BOOST_TEST(done[0].label.tag == 11);
  BOOST_TEST(done[1].name == std::string("pointwise"));
  BOOST_TEST(done[1].label.node == 8);
  BOOST_TEST(!done[1].is_copy);
  BOOST_TEST(done[2].name == std::string("copy_to_host"));
  BOOST_TEST(done[2].is_copy);
  BOOST_TEST(done[0].begin_ns >= before - error);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t end = done[i].begin_ns + done[i].length_ns;
    BOOST_TEST(done[i].length_ns >= 0);
    BOOST_TEST(end <= (i < 2 ? done[i + 1].begin_ns : after) + error);
  }
  timed().time(false);
  fill(t, 2);
  stream->synchronize();
  BOOST_TEST(timed().take_timed().empty());
}

BOOST_AUTO_TEST_CASE(work_that_has_not_ended_is_returned_later) {
  Tensor t = device->empty(DType::f32, Shape{10});
  timed().time(true);
  Hold hold(*stream);
  fill(t, 1);
  BOOST_TEST(timed().take_timed().empty());
  timed().time(false);
  hold.release();
  stream->synchronize();
  BOOST_TEST(timed().take_timed().size() == 1u);
}

BOOST_AUTO_TEST_CASE(a_failed_call_leaves_no_timed_work) {
  Tensor t = device->empty(DType::f32, Shape{10});
  timed().time(true);
  fake_cuda::fail("cudaLaunchKernel", cudaErrorInvalidConfiguration);
  BOOST_CHECK_THROW(fill(t, 1), Error);
  stream->synchronize();
  BOOST_TEST(timed().take_timed().empty());
}

BOOST_AUTO_TEST_CASE(events_that_are_far_apart_are_compared_step_by_step) {
  const auto queue = cuda::Queue::make(std::make_shared<cuda::DeviceState>(0, "gpu:0"),
                                       cuda::Queue::Priority::normal);
  {
    cuda::WorkTimer timer(queue, 0);  // each event replaces the one that others are compared with
    const std::int64_t error = timer.clock_error_ns() + 20'000, before = steady_now();
    std::vector<TimedWork> all;
    for (int i = 0; i < 20; ++i) {
      const cudaEvent_t begin = timer.begin();
      fake_cuda::enqueue(
          queue->stream(), [] {}, "work");
      timer.end(begin, "work", false, {.node = i});
      queue->synchronize();
      for (const TimedWork& w : timer.take()) all.push_back(w);
    }
    const std::int64_t after = steady_now();
    BOOST_REQUIRE(all.size() == 20u);
    BOOST_TEST(all[0].begin_ns >= before - error);
    BOOST_TEST(all[19].begin_ns + all[19].length_ns <= after + error);
    for (std::size_t i = 1; i < 20; ++i) BOOST_TEST(all[i].begin_ns >= all[i - 1].begin_ns);
  }
  queue->close();
}

BOOST_AUTO_TEST_CASE(a_traced_run_has_the_kernels_and_copies_of_the_device) {
  const Folder folder;
  EngineOptions options;
  options.default_device = "gpu:0";
  {
    Engine engine(options);
    Graph g;
    const Expr x = g.input("x", DType::f32, {8, 8});
    const Expr y = tanh(matmul(x, x)) * 2.0;
    const Function f = engine.compile(g, {x}, {y});
    const Tensor in = Tensor::zeros(DType::f32, Shape{8, 8});
    f({in});
    f({in}, {.trace = folder / "trace.json"});
  }
  const auto trace = nlohmann::json::parse(read_file(folder / "trace.json"), nullptr, false);
  BOOST_REQUIRE(!trace.is_discarded());
  std::size_t kernels = 0, products = 0, copies = 0;
  for (const auto& e : trace["traceEvents"]) {
    if (e.value("ph", "") != "X") continue;
    const bool is_kernel = e.value("cat", "") == "kernel";
    kernels += is_kernel;
    products += is_kernel && e.value("name", "").find("MatMul") != std::string::npos;
    copies += e.value("cat", "") == "copy" && e.value("name", "") == "to the host";
  }
  BOOST_TEST(kernels >= 2u);
  BOOST_TEST(products == 1u);
  BOOST_TEST(copies >= 1u);
}

BOOST_AUTO_TEST_SUITE_END()
