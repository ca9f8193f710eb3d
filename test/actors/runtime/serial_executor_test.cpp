// SerialExecutor: order and ranks, its bound, and its end.
#include <troupe/actors/runtime/serial_executor.hpp>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include <boost/test/unit_test.hpp>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(serial_executor_test)

namespace {

// An executor whose only job so far runs until `go`.
struct HeldExecutor {
  std::promise<void> runs, go;
  SerialExecutor executor;
  explicit HeldExecutor(std::size_t most_waiting) : executor(most_waiting) {
    executor.post([this, open = go.get_future().share()] {
      runs.set_value();
      open.wait();
    });
    runs.get_future().wait();
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(jobs_run_by_rank_and_in_order_of_post) {
  HeldExecutor held(8);
  std::vector<int> order;  // by the thread of the executor, until `done`
  std::promise<void> done;
  using Rank = SerialExecutor::Rank;
  held.executor.post([&] { order.push_back(3); });
  held.executor.post([&] { order.push_back(1); }, Rank::first);
  held.executor.post([&] { order.push_back(4), done.set_value(); });
  held.executor.post([&] { order.push_back(2); }, Rank::first);
  held.go.set_value();
  done.get_future().wait();
  BOOST_TEST(order == (std::vector<int>{1, 2, 3, 4}));
}

BOOST_AUTO_TEST_CASE(a_post_is_refused_when_too_many_jobs_wait) {
  HeldExecutor held(2);
  std::atomic<int> ran = 0;
  std::promise<void> done;
  BOOST_TEST(held.executor.post([&] { ++ran; }));
  BOOST_TEST(held.executor.post([&] { done.set_value(); }));
  BOOST_TEST(!held.executor.post([&] { ran += 10; }));
  BOOST_TEST(!held.executor.post([&] { ran += 10; }, SerialExecutor::Rank::first));
  held.go.set_value();
  done.get_future().wait();
  BOOST_TEST(ran == 1);
}

BOOST_AUTO_TEST_CASE(the_end_awaits_the_running_job_and_drops_others) {
  HeldExecutor held(1 << 20);
  const auto kept = std::make_shared<int>(7);
  std::atomic<bool> has_run = false, has_ended = false;
  held.executor.post([&has_run, kept] { has_run = true; });
  BOOST_TEST(kept.use_count() == 2);
  std::thread ending([&] {
    held.executor.end();
    has_ended = true;
  });
  while (held.executor.post([] {})) std::this_thread::yield();  // until the end is asked for
  BOOST_TEST(!has_ended);
  held.go.set_value();
  ending.join();
  BOOST_TEST(!has_run);
  BOOST_TEST(kept.use_count() == 1);
  BOOST_TEST(!held.executor.post([] {}));
}

BOOST_AUTO_TEST_SUITE_END()
