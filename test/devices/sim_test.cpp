// The simulated stream device: order, foreign memory, stale memory, limits and errors.
#include <boost/test/unit_test.hpp>

#include <future>

#include <troupe/devices/sim/sim_device.hpp>
#include <troupe/devices/threads/worker_pool.hpp>
#include <troupe/test/support/numbers.hpp>
#include <troupe/test/support/on_device.hpp>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(sim_device)

BOOST_AUTO_TEST_CASE(work_runs_later_and_in_order) {
  auto device = make_sim_device({.manual = true});
  auto stream = device->make_stream();
  Tensor t = device->empty(DType::f32, Shape{3});
  BOOST_TEST(!t.is_on_host());
  BOOST_TEST(!device->is_synchronous());
  float host[3] = {5, 5, 5};
  View to(host, DType::f32, Shape{3});
  ScalarProgram plus_one = increment();
  device->primitives().fill(*stream, Tensor::scalar(1.f), View(t));
  device->copy_to_host(*stream, t, to);
  ConstView in[] = {t};
  View out[] = {View(t)};
  device->primitives().pointwise(*stream, plus_one, in, out);
  device->copy_to_host(*stream, t, to);
  auto event = stream->record();
  bool passed = false;
  event->then([&](const Status& s) { passed = s.ok(); });
  BOOST_TEST(host[0] == 5);
  BOOST_TEST(step(*stream));
  BOOST_TEST(step(*stream));
  BOOST_TEST(host[0] == 1);
  BOOST_TEST(step(*stream));
  BOOST_TEST(host[0] == 1);
  BOOST_TEST(step(*stream));
  BOOST_TEST(host[0] == 2);
  BOOST_TEST((!passed && !event->is_done()));
  BOOST_TEST(step(*stream));
  BOOST_TEST((passed && event->is_done()));
  BOOST_TEST(!step(*stream));
}

BOOST_AUTO_TEST_CASE(queues_count_their_work_copies_and_events) {
  auto device = make_sim_device({.manual = true});
  auto stream = device->make_stream();
  const auto copies = device->copy_stream();
  Tensor t = device->empty(DType::f32, Shape{64});
  device->primitives().fill(*stream, Tensor::scalar(1.f), View(t));
  device->copy_from_host(*stream, Tensor::zeros(DType::f32, Shape{64}), View(t));
  const auto event = stream->record();
  const QueueActivity before = device->counters().queues.at(0);
  BOOST_TEST(before.name == "compute");
  BOOST_TEST(before.enqueued == 2u);
  BOOST_TEST(before.depth == 2u);
  BOOST_TEST(before.events == 1u);
  BOOST_TEST(before.launches == 1u);
  BOOST_TEST(before.to_device.count == 1u);
  BOOST_TEST(before.to_device.bytes == 256u);
  step(*stream);
  BOOST_TEST(device->counters().queues[0].depth == 1u);
  step(*stream);
  BOOST_TEST(device->counters().queues[0].events == 1u);
  step(*stream);
  const DeviceCounters after = device->counters();
  BOOST_TEST(after.queues[0].depth == 0u);
  BOOST_TEST(after.queues[0].events == 0u);
  BOOST_TEST(after.queues[0].busy_ns > 0u);
  BOOST_TEST(after.queues[0].busy_ns == device->counters().queues[0].busy_ns);
  BOOST_TEST(after.queues.at(1).name == "copies 1000");
  BOOST_TEST(after.queues[1].enqueued == 0u);
  BOOST_TEST(after.in_use == 256u);
}

BOOST_AUTO_TEST_CASE(the_host_counts_jobs_of_its_workers_as_a_queue) {
  std::promise<void> began, goes_on;
  struct Job {
    std::promise<void>& began;
    std::shared_future<void> goes_on;
  } job{began, goes_on.get_future().share()};
  WorkerPool pool(2);  // goes before the job: its counters order nothing
  const auto device = make_cpu_device({.pool = &pool, .name = "cpu:0"});
  const DeviceCounters before = device->counters();
  BOOST_REQUIRE(before.queues.size() == 1u);
  BOOST_TEST(before.queues[0].name == "workers");
  BOOST_TEST(before.free > 0u);
  pool.submit({[](void* object, Worker&) {
                 auto& j = *static_cast<Job*>(object);
                 j.began.set_value();
                 j.goes_on.wait();
               },
               &job});
  began.get_future().wait();
  // A worker that does not rest is busy, half of two.
  const std::uint64_t busy = device->counters().queues[0].busy_ns;
  while (device->counters().queues[0].busy_ns < busy + 1'000'000) {}
  goes_on.set_value();
  while (pool.counters().jobs == 0) {}
  BOOST_TEST(device->counters().queues[0].launches == 1u);
  BOOST_TEST(make_cpu_device()->counters().queues.empty());
}

// Under ASan a freed block leaves the process, and reading it is what ASan reports.
#if !defined(__SANITIZE_ADDRESS__)
BOOST_AUTO_TEST_CASE(fresh_and_freed_memory_is_poisoned) {
  auto device = make_sim_device({.manual = true});
  auto stream = device->make_stream();
  Tensor t = device->empty(DType::f32, Shape{64});
  BOOST_TEST(std::isnan(fetch(*device, *stream, t).at(7)));
  device->primitives().fill(*stream, Tensor::scalar(1.f), View(t));
  ConstView stale(t);
  void* block = const_cast<void*>(t.raw());
  float seen[2] = {};
  // Work queued before the tensor goes still sees its elements; work behind sees the pattern.
  device->copy_to_host(*stream, ConstView(stale.data(), DType::f32, Shape{}),
                       View(seen, DType::f32, Shape{}));
  t.reset();
  device->copy_to_host(*stream, ConstView(stale.data(), DType::f32, Shape{}),
                       View(seen + 1, DType::f32, Shape{}));
  Tensor next = device->empty(DType::f32, Shape{64});
  BOOST_TEST_WARN(next.raw() == block);
  stream->synchronize();
  BOOST_TEST(seen[0] == 1);
  BOOST_TEST(std::isnan(seen[1]));
}
#endif

BOOST_AUTO_TEST_CASE(streams_are_ordered_by_events_alone) {
  auto device = make_sim_device({.manual = true});
  auto compute = device->make_stream(), copies = device->make_stream();
  Tensor t = device->empty(DType::f32, Shape{4});
  float host[4] = {};
  device->primitives().fill(*compute, Tensor::scalar(3.f), View(t));
  auto filled = compute->record();
  copies->wait(filled);
  device->copy_to_host(*copies, t, View(host, DType::f32, Shape{4}));
  BOOST_TEST(!step(*copies));  // the event lies ahead
  BOOST_CHECK_THROW(copies->synchronize(), Error);
  compute->synchronize();
  copies->synchronize();
  BOOST_TEST(host[3] == 3);
}

BOOST_AUTO_TEST_CASE(host_memory_is_foreign) {
  auto device = make_sim_device();
  auto stream = device->make_stream();
  Tensor on_device = device->empty(DType::f32, Shape{100}),
         on_host = Tensor::zeros(DType::f32, Shape{100});
  BOOST_CHECK_THROW(device->primitives().copy(*stream, on_host, View(on_device)), Error);
  BOOST_CHECK_THROW(device->primitives().fill(*stream, Tensor::scalar(1.f), View(on_host)), Error);
  device->copy_from_host(*stream, on_host, View(on_device));
  BOOST_TEST(fetch(*device, *stream, on_device).at(99) == 0);
}

BOOST_AUTO_TEST_CASE(the_memory_limit_binds) {
  auto device = make_sim_device({.memory_limit = 1 << 20});
  auto stream = device->make_stream();
  Tensor half = device->empty(DType::f32, Shape{1 << 17});
  Tensor other = device->empty(DType::f32, Shape{1 << 17});
  BOOST_CHECK_EXCEPTION(device->empty(DType::f32, Shape{16}), Error,
                        [](const Error& e) { return e.code() == Code::resource_exhausted; });
  BOOST_TEST(device->allocator().counters().in_use == std::uint64_t(1 << 20));
  other.reset();
  Tensor small = device->empty(DType::f32, Shape{1 << 10});
  BOOST_TEST(device->allocator().counters().peak == std::uint64_t(1 << 20));
}

BOOST_AUTO_TEST_CASE(errors_become_the_streams_status_until_reported) {
  auto device = make_sim_device();
  auto stream = device->make_stream();
  Tensor params = device->empty(DType::f32, Shape{4}), out = device->empty(DType::f32, Shape{1}),
         index = device->empty(DType::i64, Shape{1});
  device->copy_from_host(*stream, Tensor::of<std::int64_t>({9}), View(index));
  stream->synchronize();
  device->primitives().gather(*stream, params, index, 0, View(out));
  device->primitives().fill(*stream, Tensor::scalar(1.f), View(params));  // skipped
  std::promise<Status> first, second;
  stream->record()->then([&](const Status& s) { first.set_value(s); });
  device->primitives().fill(*stream, Tensor::scalar(2.f), View(out));  // runs
  stream->record()->then([&](const Status& s) { second.set_value(s); });
  Status status = first.get_future().get();
  BOOST_TEST((status.code() == Code::out_of_range));
  BOOST_TEST(status.message() == "index 9 at position 0 is outside [0, 4)");
  BOOST_TEST(second.get_future().get().ok());
  BOOST_TEST(fetch(*device, *stream, out).at(0) == 2);
  BOOST_TEST(std::isnan(fetch(*device, *stream, params).at(0)));

  device->primitives().gather(*stream, params, index, 0, View(out));
  BOOST_CHECK_THROW(stream->synchronize(), Error);
  BOOST_CHECK_NO_THROW(stream->synchronize());
  // A stream that waits for the failed one fails too.
  auto other = device->make_stream();
  device->primitives().gather(*stream, params, index, 0, View(out));
  other->wait(stream->record());
  BOOST_CHECK_THROW(other->synchronize(), Error);
}

BOOST_AUTO_TEST_CASE(a_long_chain_with_delays_and_reuse_gives_the_cpus_bits) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    auto device = make_sim_device({.seed = seed, .max_delay_us = 20});
    auto stream = device->make_stream();
    ScalarProgram plus_one = increment();
    Tensor t = device->empty(DType::f32, Shape{1000});
    device->primitives().fill(*stream, Tensor::scalar(0.f), View(t));
    for (int i = 0; i < 50; ++i) {
      Tensor next = device->empty(DType::f32, Shape{1000});
      ConstView in[] = {t};
      View out[] = {View(next)};
      device->primitives().pointwise(*stream, plus_one, in, out);
      t = std::move(next);  // the old block is free while the work that reads it is queued
    }
    BOOST_TEST(fetch(*device, *stream, t).at(999) == 50);
#if !defined(__SANITIZE_ADDRESS__)  // there every block goes back at once
    BOOST_TEST(device->allocator().counters().misses <= 3u);
#endif
  }
}

BOOST_AUTO_TEST_SUITE_END()
