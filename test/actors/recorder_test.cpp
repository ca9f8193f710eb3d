// How much flight recorders keep, and by which clock.
#include <boost/test/unit_test.hpp>

#include <deque>
#include <thread>

#include <troupe/actors/recorder.hpp>

namespace troupe::test {
namespace {

void add(FlightRecorder& recorder, std::uint64_t events) {
  for (std::uint64_t i = 0; i < events; ++i) recorder.add({RecordedEvent::Kind::firing, false, 0, ticks(), 1, 1, static_cast<std::int64_t>(i), 0});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(recorder_test)

BOOST_AUTO_TEST_CASE(the_last_events_are_kept_while_nobody_traces) {
  FlightRecorder recorder;
  add(recorder, 5000);
  const auto kept = recorder.since(0);
  BOOST_REQUIRE(kept.size() == 512u);
  BOOST_TEST(kept.front().tag == 4488);
  BOOST_TEST(kept.back().tag == 4999);
  BOOST_TEST(recorder.dropped() == 4488u);
}

// Seconds of a busy plan; and for all of the process together there is a bound, past which the latest are kept.
BOOST_AUTO_TEST_CASE(a_trace_has_room_for_many_until_all_recorders_have_grown_enough) {
  constexpr std::uint64_t kMany = 300'000;
  std::deque<FlightRecorder> recorders(8);
  for (FlightRecorder& r : recorders) r.trace(true);
  add(recorders[0], kMany);
  BOOST_TEST(recorders[0].dropped() == 0u);
  BOOST_TEST(recorders[0].since(0).size() == kMany);
  for (FlightRecorder& r : recorders) add(r, kMany);
  std::uint64_t kept = 0;
  for (FlightRecorder& r : recorders) {
    const auto events = r.since(0);
    BOOST_TEST(events.size() >= std::size_t{1} << 15);
    BOOST_TEST(events.back().tag == static_cast<std::int64_t>(kMany - 1));
    for (std::size_t i = 1; i < events.size(); ++i) BOOST_REQUIRE(events[i].tag == (events[i - 1].tag + 1) % static_cast<std::int64_t>(kMany));
    kept += events.size();
  }
  BOOST_TEST(kept <= (std::uint64_t{1} << 19) + 8 * (std::uint64_t{1} << 15));
  BOOST_TEST(kept < 8 * kMany);  // it binds
  for (FlightRecorder& r : recorders) r.trace(false);
  recorders[7].trace(true);  // what they had is there for the next
  add(recorders[7], kMany);
  BOOST_TEST(recorders[7].dropped() == 0u);
}

BOOST_AUTO_TEST_CASE(recorders_of_many_threads_grow_within_the_bound_and_give_it_back) {
  constexpr std::uint64_t kMany = 150'000;
  for (int round = 0; round < 3; ++round) {
    std::deque<FlightRecorder> recorders(6);
    std::vector<std::thread> threads;
    for (FlightRecorder& r : recorders)
      threads.emplace_back([&r] {
        r.trace(true);
        add(r, kMany);
      });
    for (std::thread& t : threads) t.join();
    std::uint64_t kept = 0;
    for (FlightRecorder& r : recorders) kept += kMany - r.dropped();
    BOOST_TEST(kept <= (std::uint64_t{1} << 19) + 6 * (std::uint64_t{1} << 15));
    BOOST_TEST(kept >= std::uint64_t{1} << 18);  // of the bound, which doubling may not use up
  }
}

// Two recorders that are asked by one clock tell times in the order of events, whenever each is asked.
BOOST_AUTO_TEST_CASE(what_came_later_is_told_later) {
  FlightRecorder a, b;
  for (int i = 0; i < 200; ++i) add(a, 1), add(b, 1);
  const TickClock clock = TickClock::now();
  const auto of_a = a.since(0, clock);
  add(a, 100);
  const auto of_b = b.since(0, clock);
  BOOST_REQUIRE(of_a.size() == of_b.size());
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    BOOST_TEST(of_a[i].begin_ns <= of_b[i].begin_ns);
    if (i > 0) BOOST_TEST(of_b[i - 1].begin_ns <= of_a[i].begin_ns);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
