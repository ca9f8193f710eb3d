// The GPU device over the fake runtime: order, memory, copies, completion, errors, peers.
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <cmath>
#include <future>
#include <thread>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/autodiff/gradients.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/devices/device/registry.hpp>
#include <troupe/devices/device/swap.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/support/cuda/fake_cuda.hpp>
#include <troupe/test/support/gpu.hpp>
#include <troupe/test/support/on_device.hpp>

using namespace troupe;
using namespace troupe::test;

namespace {

// A fake machine of its own for each test: nothing of the one before is left.
struct FakeMachine {
  FakeMachine() { fake_cuda::reset({.seed = 7, .max_delay_us = 30}); }
  ~FakeMachine() {
    for (const std::string& v : fake_cuda::report().violations) BOOST_ERROR("violation: " << v);
    fake_cuda::reset();
  }
};

std::unique_ptr<Device> make_gpu(GpuOptions options = {}, int index = 0, SwapOptions swap = {}) {
  options.poisons = true;
  return make_device("gpu:" + std::to_string(index),
                     {.seed = 1, .swap = swap, .gpu = std::move(options)});
}

Tensor on_gpu(Device& device, Stream& stream, const Tensor& host) {
  Tensor there = device.empty(host.dtype(), host.shape());
  device.copy_from_host(stream, host, View(there));
  return there;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(cuda_device_test, FakeMachine)

BOOST_AUTO_TEST_CASE(work_runs_in_order_and_events_report_it) {
  const auto device = make_gpu();
  BOOST_TEST(device->name() == "gpu:0");
  BOOST_TEST(device->kind() == "gpu");
  BOOST_TEST(!device->is_synchronous());
  const auto stream = device->make_stream();
  Tensor t = device->empty(DType::f32, Shape{1000});
  BOOST_TEST(!t.is_on_host());
  const ScalarProgram program = increment();
  device->primitives().fill(*stream, Tensor::scalar(1.f), View(t));
  const ConstView in[] = {t};
  const View out[] = {View(t)};
  for (int i = 0; i < 5; ++i) device->primitives().pointwise(*stream, program, in, out);
  std::promise<Status> passed;
  const auto event = stream->record();
  event->then([&](const Status& s) { passed.set_value(s); });
  BOOST_TEST(passed.get_future().get().ok());
  BOOST_TEST(event->is_done());
  BOOST_TEST(fetch(*device, *stream, t).at(999) == 6);
}

BOOST_AUTO_TEST_CASE(callbacks_come_in_the_order_of_their_points_and_once) {
  const auto device = make_gpu();
  const auto stream = device->make_stream();
  std::vector<int> order;  // written by one thread at a time, which the points order
  std::promise<void> all;
  for (int i = 0; i < 200; ++i)
    stream->record()->then([&, i](const Status&) {
      order.push_back(i);
      if (i == 199) all.set_value();
    });
  all.get_future().wait();
  for (int i = 0; i < 200; ++i) BOOST_TEST(order[static_cast<std::size_t>(i)] == i);
  int late = 0;
  stream->synchronize();
  const auto event = stream->record();
  stream->synchronize();
  event->then([&](const Status&) { ++late; });
  BOOST_TEST(late == 1);
}

BOOST_AUTO_TEST_CASE(several_threads_record_and_poll_at_once) {
  const auto device = make_gpu();
  std::atomic<int> passed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      const auto stream = device->compute_stream();
      for (int k = 0; k < 100; ++k) {
        stream->record()->then([&](const Status&) { ++passed; });
        device->poll();
      }
      stream->synchronize();
    });
  for (std::thread& t : threads) t.join();
  BOOST_TEST(passed == 400);
}

BOOST_AUTO_TEST_CASE(events_order_streams) {
  const auto device = make_gpu();
  const auto compute = device->make_stream(), copies = device->copy_stream();
  Tensor t = device->empty(DType::f32, Shape{4000});
  Tensor host = device->host_empty(DType::f32, Shape{4000});
  device->primitives().fill(*compute, Tensor::scalar(3.f), View(t));
  copies->wait(compute->record());
  device->copy_to_host(*copies, t, View(host));
  copies->synchronize();
  BOOST_TEST(host.at(3999) == 3);
}

BOOST_AUTO_TEST_CASE(fresh_and_freed_memory_is_not_a_number_when_asked_for) {
  const auto device = make_gpu();
  const auto stream = device->make_stream();
  Tensor t = device->empty(DType::f32, Shape{64});
  BOOST_TEST(std::isnan(fetch(*device, *stream, t).at(7)));
}

BOOST_AUTO_TEST_CASE(copies_of_any_host_memory_arrive) {
  const auto device = make_gpu();
  const auto stream = device->make_stream();
  for (std::int64_t n : {1, 3, 16, 17, 100000}) {
    Tensor pageable = Tensor::zeros(DType::i32, Shape{n});
    for (std::int64_t i = 0; i < n; ++i)
      pageable.mutable_data<std::int32_t>()[i] = static_cast<std::int32_t>(3 * i);
    Tensor there = on_gpu(*device, *stream, pageable);
    // the source may go at once
    pageable.reset();
    const Tensor back = fetch(*device, *stream, there);
    for (std::int64_t i = 0; i < n; ++i) BOOST_REQUIRE(back.at(i) == static_cast<double>(3 * i));
    Tensor pinned = device->host_empty(DType::i32, Shape{n});
    device->copy_to_host(*stream, there, View(pinned));
    stream->synchronize();
    BOOST_TEST(pinned.at(n - 1) == static_cast<double>(3 * (n - 1)));
  }
  BOOST_TEST(fake_cuda::report().pageable_copies.empty());
}

// Under ASan a freed block goes back at once.
#if !defined(__SANITIZE_ADDRESS__)
BOOST_AUTO_TEST_CASE(steady_state_asks_the_driver_for_no_memory) {
  const auto device = make_gpu();
  const auto stream = device->make_stream();
  const auto round = [&] {
    Tensor t = device->empty(DType::f32, Shape{1000});
    device->primitives().fill(*stream, Tensor::scalar(1.f), View(t));
    fetch(*device, *stream, t);
  };
  for (int i = 0; i < 3; ++i) round();
  const auto misses = device->allocator().counters().misses;
  for (int i = 0; i < 20; ++i) round();
  BOOST_TEST(device->allocator().counters().misses == misses);
}
#endif

BOOST_AUTO_TEST_CASE(the_memory_limit_binds_and_names_what_helps) {
  const auto device = make_gpu({.memory_limit = 1 << 20});
  Tensor half = device->empty(DType::f32, Shape{1 << 17});
  Tensor other = device->empty(DType::f32, Shape{1 << 17});
  BOOST_CHECK_EXCEPTION(device->empty(DType::f32, Shape{16}), Error, [](const Error& e) {
    return e.code() == Code::resource_exhausted &&
           std::string(e.what()).find("gpu:0") != std::string::npos;
  });
  other.reset();
  Tensor small = device->empty(DType::f32, Shape{1 << 10});
  BOOST_TEST(device->allocator().counters().peak == std::uint64_t(1 << 20));
}

BOOST_AUTO_TEST_CASE(a_driver_without_memory_is_trimmed_and_asked_again) {
  const auto device = make_gpu();
  fake_cuda::fail("cudaMallocFromPoolAsync", cudaErrorMemoryAllocation);
  BOOST_CHECK_NO_THROW(device->empty(DType::f32, Shape{1 << 16}));
}

BOOST_AUTO_TEST_CASE(indices_outside_are_the_streams_status_once) {
  const auto device = make_gpu();
  const auto stream = device->make_stream();
  Tensor params = on_gpu(*device, *stream, Tensor::of<float>({1, 2, 3, 4})),
         out = device->empty(DType::f32, Shape{3}),
         index = on_gpu(*device, *stream, Tensor::of<std::int64_t>({0, -1, 9}));
  device->primitives().gather(*stream, params, index, 0, View(out));
  std::promise<Status> first, second;
  stream->record()->then([&](const Status& s) { first.set_value(s); });
  stream->record()->then([&](const Status& s) { second.set_value(s); });
  const Status status = first.get_future().get();
  BOOST_TEST((status.code() == Code::out_of_range));
  BOOST_TEST(status.message() == "index -1 at position 1 is outside [0, 4)");
  BOOST_TEST(second.get_future().get().ok());
  // The index record is free again, and clean.
  device->primitives().gather(
      *stream, params, on_gpu(*device, *stream, Tensor::of<std::int32_t>({3, 2, 1})), 0, View(out));
  BOOST_TEST(fetch(*device, *stream, out).at(0) == 4);
}

BOOST_AUTO_TEST_CASE(a_fault_takes_the_error_and_skips_what_follows) {
  const auto device = make_gpu();
  const auto stream = device->make_stream();
  Tensor params = on_gpu(*device, *stream, Tensor::of<float>({1, 2})),
         out = on_gpu(*device, *stream, Tensor::of<float>({5}));
  const auto fault = std::make_shared<Fault>();
  stream->attribute(fault, 42);
  device->primitives().gather(
      *stream, params, on_gpu(*device, *stream, Tensor::of<std::int64_t>({7})), 0, View(out));
  stream->synchronize();
  BOOST_TEST(fault->is_set());
  BOOST_TEST(fault->origin() == 42);
  BOOST_TEST((fault->status().code() == Code::out_of_range));
  device->primitives().fill(*stream, Tensor::scalar(9.f), View(out));
  stream->attribute(nullptr, 0);
  BOOST_TEST(fetch(*device, *stream, out).at(0) == 5);
}

BOOST_AUTO_TEST_CASE(more_checked_kernels_than_records_do_not_hang) {
  const auto device = make_gpu();
  const auto stream = device->make_stream();
  Tensor params = on_gpu(*device, *stream, Tensor::of<float>({1, 2})),
         out = device->empty(DType::f32, Shape{1}),
         index = on_gpu(*device, *stream, Tensor::of<std::int64_t>({1}));
  for (int i = 0; i < 2500; ++i) device->primitives().gather(*stream, params, index, 0, View(out));
  BOOST_TEST(fetch(*device, *stream, out).at(0) == 2);
}

BOOST_AUTO_TEST_CASE(events_report_completion_without_the_drivers_numbers) {
  fake_cuda::reset({.seed = 3, .has_write_value = false});
  const auto device = make_gpu();
  const auto stream = device->make_stream();
  Tensor t = device->empty(DType::f32, Shape{10});
  device->primitives().fill(*stream, Tensor::scalar(2.f), View(t));
  BOOST_TEST(fetch(*device, *stream, t).at(9) == 2);
}

BOOST_AUTO_TEST_CASE(a_sticky_error_fails_the_device_and_nothing_else) {
  const auto device = make_gpu();
  const auto stream = device->make_stream();
  Tensor t = device->empty(DType::f32, Shape{10});
  fake_cuda::make_sticky(0, cudaErrorIllegalAddress);
  BOOST_CHECK_EXCEPTION(
      {
        device->primitives().fill(*stream, Tensor::scalar(2.f), View(t));
        stream->synchronize();
      },
      Error,
      [](const Error& e) {
        const std::string text = e.what();
        return e.code() == Code::unavailable && text.find("gpu:0") != std::string::npos &&
               text.find("cudaErrorIllegalAddress") != std::string::npos;
      });
  const auto cpu = make_device("cpu:0", {});
  BOOST_CHECK_NO_THROW(cpu->make_stream()->synchronize());
}

BOOST_AUTO_TEST_CASE(peers_copy_behind_each_others_work) {
  fake_cuda::reset({.seed = 5, .devices = 2});
  const auto first = make_gpu(), second = make_gpu({}, 1);
  const auto from = first->make_stream(), to = second->make_stream();
  Tensor source = first->empty(DType::f32, Shape{5000});
  first->primitives().fill(*from, Tensor::scalar(4.f), View(source));
  Tensor copy = second->empty(DType::f32, Shape{5000});
  BOOST_TEST(second->copy_from_peer(*to, source, *first, View(copy)));
  source.reset();  // reused in the first's order, behind the copy
  Tensor other = first->empty(DType::f32, Shape{5000});
  first->primitives().fill(*from, Tensor::scalar(8.f), View(other));
  BOOST_TEST(fetch(*second, *to, copy).at(4999) == 4);
  const auto cpu = make_device("cpu:0", {});
  BOOST_TEST(!second->copy_from_peer(*to, source, *cpu, View(copy)));
}

BOOST_AUTO_TEST_CASE(tokens_between_two_gpus_do_not_pass_the_host) {
  const auto run = [](bool has_path) {
    fake_cuda::reset({.seed = 9, .max_delay_us = 20, .devices = 2});
    const Tensor in = Tensor::of<float>({1, 2, 3, 4});
    const auto copies = [&] {
      Engine engine(EngineOptions{.workers = 2, .default_device = "gpu:0"});
      Graph g;
      const Expr x = g.input("x", DType::f32, {4});
      const Expr first = tanh(x * 0.5);
      Expr second;
      {
        const auto there = g.on_device("gpu:1");
        second = first + 1.0;
      }
      const Function f = engine.compile(g, {x}, {second * 2.0});
      if (!has_path) fake_cuda::fail("cudaMemcpyPeerAsync", cudaErrorInvalidDevice);
      const std::uint64_t before = fake_cuda::report().copies;
      const Tensor out = f({in})[0];
      for (std::int64_t i = 0; i < 4; ++i)
        BOOST_TEST(std::abs(out.at(i) - 2 * (1 + std::tanh(0.5 * in.at(i)))) < 1e-5);
      return fake_cuda::report().copies - before;
    }();
    return copies;
  };
  // There and back: by way of the host, each is two copies.
  const std::uint64_t direct = run(true);
  BOOST_TEST(run(false) == direct + 1);
}

BOOST_AUTO_TEST_CASE(saved_values_move_to_the_host_and_back) {
  const auto device = make_gpu({.memory_limit = 64 << 10}, 0,
                               {.threshold = 1, .fill_level = 0.3, .keep_level = 0.5});
  BOOST_REQUIRE(device->swapper());
  EngineOptions options;
  options.default_device = "gpu:0";
  options.gpu.memory_limit = 192 << 10;
  options.swap = {.threshold = 1, .fill_level = 0.3};
  Engine engine(options);
  Graph g;
  const Expr x = g.constant(Tensor::zeros(DType::f32, Shape{1024})) + 1.0;
  const auto [n, y] = while_loop([](Expr i, Expr) { return i < 64; },
                                 [](Expr i, Expr v) { return std::tuple(i + 1, tanh(v * 1.01)); },
                                 std::tuple(g.constant(0), x));
  const Expr dx = gradients(sum(y), x)[0];
  const Tensor on_device = engine.run(g, {}, {dx})[0];
  const Tensor on_cpu = Engine().run(g, {}, {dx})[0];
  for (std::int64_t i = 0; i < 1024; ++i) BOOST_REQUIRE_CLOSE(on_device.at(i), on_cpu.at(i), 1e-3);
  BOOST_TEST(engine.device("gpu:0").swapper()->counters().out > 0u);
}

BOOST_AUTO_TEST_CASE(operations_without_primitives_run_on_the_host_in_explain) {
  EngineOptions options;
  options.default_device = "gpu:0";
  Engine engine(options);
  Graph g;
  const Expr x = g.input("x", DType::f32, {2, 2});
  const Expr y = cholesky(x * 2.0) + 1.0;
  const Function f = engine.compile(g, {x}, {y});
  const std::string text = f.explain();
  BOOST_TEST(text.find("on the host, for gpu:0 lacks their primitives: Cholesky") !=
             std::string::npos);
  const Tensor in = Tensor::of<float>({4, 1, 1, 3}, Shape{2, 2});
  const Tensor on_gpu = f({in})[0];
  const Tensor on_cpu = Engine().run(g, {{x, in}}, {y})[0];
  for (std::int64_t i = 0; i < 4; ++i) BOOST_TEST(on_gpu.at(i) == on_cpu.at(i));
}

BOOST_AUTO_TEST_CASE(an_index_outside_names_the_users_line) {
  EngineOptions options;
  options.default_device = "gpu:0";
  Engine engine(options);
  Graph g;
  const Expr x = g.input("x", DType::f32, {4}), i = g.input("i", DType::i64, {2});
  const unsigned line = __LINE__ + 1;
  const Expr y = gather(x, i);
  BOOST_CHECK_EXCEPTION(
      engine.run(g,
                 {{x, Tensor::zeros(DType::f32, Shape{4})}, {i, Tensor::of<std::int64_t>({3, 4})}},
                 {y * 2.0}),
      Error, [line](const Error& e) {
        const std::string text = e.what();
        return e.code() == Code::out_of_range &&
               text.find("index 4 at position 1 is outside [0, 4)") != std::string::npos &&
               text.find("device_test.cpp:" + std::to_string(line)) != std::string::npos;
      });
}

BOOST_AUTO_TEST_CASE(names_beyond_the_machine_are_refused) {
  BOOST_CHECK_EXCEPTION(make_gpu({}, 7), Error, [](const Error& e) {
    return e.code() == Code::not_found && std::string(e.what()).find("gpu:0") != std::string::npos;
  });
}

BOOST_AUTO_TEST_SUITE_END()
