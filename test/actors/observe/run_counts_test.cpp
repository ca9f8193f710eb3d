// Runs that have ended, by duration and by status: buckets by their bounds, plans, an engine.
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <numeric>

#include <troupe/actors/observe/run_counts.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(run_counts_test, TROUPE_ONE_THREAD)

BOOST_AUTO_TEST_CASE(bound_belongs_to_the_bucket_below_it) {
  BOOST_TEST(RunDurations::bucket_of(0ns) == 0u);
  BOOST_TEST(RunDurations::bucket_of(100us) == 0u);
  BOOST_TEST(RunDurations::bucket_of(100'001ns) == 1u);
  BOOST_TEST(RunDurations::bucket_of(1s) == 8u);
  BOOST_TEST(RunDurations::bucket_of(1h) == RunDurations::kBounds.size() - 1);
  BOOST_TEST(RunDurations::bucket_of(1h + 1ns) == RunDurations::kBounds.size());
}

BOOST_AUTO_TEST_CASE(counter_adds_up_runs_and_time) {
  RunDurationCounter counter;
  for (const auto took : {std::chrono::nanoseconds(20us), std::chrono::nanoseconds(3ms),
                          std::chrono::nanoseconds(4ms), std::chrono::nanoseconds(2h)})
    counter.add(took);
  const RunDurations all = counter.durations();
  BOOST_TEST(all.runs[0] == 1u);
  BOOST_TEST(all.runs[3] == 2u);
  BOOST_TEST(all.runs.back() == 1u);
  BOOST_TEST(all.total_ns == std::chrono::nanoseconds(20us + 7ms + 2h).count());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(counted_runs_test)

// One good run, one that its caller cancels, one whose input is wrong.
BOOST_AUTO_TEST_CASE(engine_counts_runs_by_duration_and_by_status) {
  Graph g;
  const Expr x = g.input("x", DType::f32, {4}), i = g.input("i", DType::i64, Shape{});
  Queue jobs = g.fifo_queue("jobs", {{DType::i64, Shape{}}}, 1);
  const Expr picked = gather(x, i), taken = jobs.dequeue()[0];
  Engine engine;
  const Function pick = engine.compile(g, {x, i}, {picked}), take = engine.compile(g, {}, {taken});
  const Tensor xs = Tensor::of<float>({1, 2, 3, 4});
  pick({xs, Tensor::scalar(std::int64_t{2})});
  BOOST_CHECK_THROW(pick({xs, Tensor::scalar(std::int64_t{9})}), Error);
  RunHandle waits = take.start({});
  waits.cancel();
  BOOST_TEST((waits.wait().code() == Code::cancelled));

  // A run is counted when its partitions have drained, a little after its caller was answered.
  EngineSnapshot now;
  std::uint64_t ended = 0;
  const auto began = std::chrono::steady_clock::now();
  do {
    now = engine.snapshot();
    ended = std::accumulate(now.ended_by.begin(), now.ended_by.end(), std::uint64_t{0});
  } while (ended < 3 && std::chrono::steady_clock::now() - began < 60s);
  const auto of = [&](Code code) { return now.ended_by[static_cast<std::size_t>(code)]; };
  BOOST_TEST(of(Code::ok) == 1u);
  BOOST_TEST(of(Code::out_of_range) == 1u);
  BOOST_TEST(of(Code::cancelled) == 1u);
  BOOST_TEST(ended == 3u);
  BOOST_REQUIRE(now.plans.size() == 2u);
  for (const PlanSnapshot& p : now.plans) {
    const auto& runs = p.durations.runs;
    const std::uint64_t counted = std::accumulate(runs.begin(), runs.end(), std::uint64_t{0});
    BOOST_TEST(counted == p.ended + p.failed);
    BOOST_TEST(p.durations.total_ns > 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
