// How much flight recorders keep, and by which clock.
#include <boost/test/unit_test.hpp>

#include <deque>
#include <thread>
#include <tuple>

#include <troupe/actors/observe/recorder.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(recorder_test)

namespace {

void add(FlightRecorder& recorder, std::uint64_t events) {
  for (std::uint64_t i = 0; i < events; ++i)
    recorder.add(
        {RecordedEvent::Kind::firing, false, 0, ticks(), 1, 1, static_cast<std::int64_t>(i), 0});
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_last_events_are_kept_without_a_trace) {
  FlightRecorder recorder;
  add(recorder, 5000);
  const auto kept = recorder.since(0);
  BOOST_REQUIRE(kept.size() == 512u);
  BOOST_TEST(kept.front().tag == 4488);
  BOOST_TEST(kept.back().tag == 4999);
  BOOST_TEST(recorder.dropped() == 4488u);
}

// Seconds of a busy plan; and for all of the process together there is a bound, past which the
// latest are kept.
BOOST_AUTO_TEST_CASE(trace_grows_until_all_recorders_reach_their_bound) {
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
    for (std::size_t i = 1; i < events.size(); ++i)
      BOOST_REQUIRE(events[i].tag == (events[i - 1].tag + 1) % static_cast<std::int64_t>(kMany));
    kept += events.size();
  }
  BOOST_TEST(kept <= (std::uint64_t{1} << 19) + 8 * (std::uint64_t{1} << 15));
  BOOST_TEST(kept < 8 * kMany);  // it binds
  for (FlightRecorder& r : recorders) r.trace(false);
  recorders[7].trace(true);  // their events are there for the next
  add(recorders[7], kMany);
  BOOST_TEST(recorders[7].dropped() == 0u);
}

// A shorter trace of one client does not end another's trace.
BOOST_AUTO_TEST_CASE(a_trace_ends_with_its_last_tracer) {
  FlightRecorder recorder;
  // Runs by their numbers; two nodes; two traces of one of them.
  const Tracer run{7}, short_run{8}, node{1, 5}, other_node{1, 6}, again{2, 6};
  recorder.trace(true, run);
  add(recorder, 1000);
  for (const Tracer& who : {short_run, node, other_node, again}) recorder.trace(true, who);
  add(recorder, 1000);
  // including tracers that have ended already, or never began
  for (const Tracer& who :
       {short_run, run, other_node, other_node, Tracer{9}, Tracer{1, 7}, again}) {
    recorder.trace(false, who);
    BOOST_TEST(recorder.traces());
    BOOST_TEST(recorder.since(0).size() == 2000u);
  }
  recorder.trace(false, node);
  BOOST_TEST(!recorder.traces());
  BOOST_TEST(recorder.since(0).empty());
}

// An outside client may disappear before it ends its trace; a run that is traced ends.
BOOST_AUTO_TEST_CASE(a_trace_that_was_asked_for_from_outside_ends_by_itself) {
  FlightRecorder recorder;
  const Tracer node{1, 5}, other{1, 6}, run{7};
  recorder.trace(true, node, 100);
  recorder.expire(100);
  BOOST_TEST(recorder.traces());
  recorder.trace(true, node, 200);  // asked again
  recorder.expire(150);
  BOOST_TEST(recorder.traces());
  recorder.trace(true, run, 300);
  recorder.expire(1000);
  BOOST_TEST(recorder.traces());  // for the run
  recorder.trace(false, run);
  BOOST_TEST(!recorder.traces());
  recorder.trace(true, node, 2000);
  recorder.trace(true, other, 3000);
  recorder.expire(2001);
  BOOST_TEST(recorder.traces());  // for the other
  recorder.expire(3001);
  BOOST_TEST(!recorder.traces());
}

// A node that asks again and again, for another trace each time, is remembered by its last: a run's
// trace is not forgotten for them.
BOOST_AUTO_TEST_CASE(traces_of_nodes_are_bounded) {
  for (const std::uint64_t node : {5u, 0u}) {  // whatever it calls its life
    FlightRecorder recorder;
    recorder.trace(true, {7});
    for (std::uint64_t i = 0; i < 1000; ++i) recorder.trace(true, {i, node}, 100);
    for (std::uint64_t i = 900; i < 1000; ++i) recorder.trace(false, {i, node});
    BOOST_TEST(recorder.traces());
    recorder.trace(false, {7});
    BOOST_TEST(!recorder.traces());
    recorder.trace(true, {7, node}, 100);
    recorder.expire(101);
    BOOST_TEST(!recorder.traces());
  }
}

BOOST_AUTO_TEST_CASE(recorders_of_many_threads_grow_within_the_bound_and_free_it) {
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
    BOOST_TEST(kept >= std::uint64_t{1} << 18);  // part of the bound, which doubling may not use up
  }
}

// Two recorders that are asked by one clock tell times in the order of events, whenever each is
// asked.
BOOST_AUTO_TEST_CASE(later_events_are_in_later_answers) {
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

// A client that asks every second misses none of 10,000 events a second; afterwards there is room
// for as few as before.
BOOST_AUTO_TEST_CASE(a_watched_recorder_holds_the_events_between_two_questions) {
  FlightRecorder recorder;
  add(recorder, 5000);
  TickClock clock = TickClock::now();
  recorder.watch(clock);
  auto kept = recorder.since(0, clock);
  BOOST_REQUIRE(kept.size() == 512u);  // overwritten events are missing
  BOOST_TEST(kept.back().tag == 4999);
  BOOST_TEST(recorder.whole_since(clock) == kept.front().begin_ns);
  for (int second = 0; second < 5; ++second) {
    const std::int64_t asked = TickClock::now().at_ticks(ticks());
    add(recorder, 10'000);
    clock = TickClock::now();
    recorder.watch(clock);
    const auto heard = recorder.since(asked, clock);
    BOOST_TEST(heard.size() >= 9'000u);  // the clock is looked at anew
    BOOST_TEST(heard.back().tag == 9'999);
    BOOST_TEST(recorder.whole_since(clock) <= asked);
    for (std::size_t i = 1; i < heard.size(); ++i)
      BOOST_REQUIRE(heard[i].tag == (heard[i - 1].tag + 1) % 10'000);
  }
  recorder.add_turn(ticks() + clock.ticks_of(11'000'000'000), 100, 1, 3);
  kept = recorder.since(0, clock);
  BOOST_REQUIRE(kept.size() == 512u);
  BOOST_TEST(kept.back().tag == 3);
  BOOST_TEST(kept[510].tag == 9'999);
  BOOST_TEST(recorder.dropped() == 55'001u - 512u);
  add(recorder, 1000);
  BOOST_TEST(recorder.since(0).size() == 512u);
  BOOST_TEST(recorder.since(0).back().tag == 999);
}

BOOST_AUTO_TEST_CASE(watched_recorders_leave_half_of_the_room_to_traces) {
  std::deque<FlightRecorder> recorders(40);
  for (FlightRecorder& r : recorders) r.watch(TickClock::now());
  for (FlightRecorder& r : recorders) add(r, 20'000);
  std::size_t large = 0;
  for (FlightRecorder& r : recorders) large += r.since(0).size() == FlightRecorder::kWatched;
  BOOST_TEST(large >= 15u);
  BOOST_TEST(large < 40u);
  FlightRecorder traced;
  traced.trace(true);
  add(traced, 200'000);
  BOOST_TEST(traced.dropped() == 0u);
}

// A loop of scalars is one turn after the other: merged they last, and nothing of them is
// lost.
BOOST_AUTO_TEST_CASE(turns_in_quick_succession_are_one_event) {
  const auto turns = [](FlightRecorder& recorder, std::uint64_t gap) {
    constexpr std::uint64_t kLength = 10'000;
    const std::uint64_t begin = ticks();
    for (std::uint64_t i = 0; i < 5000; ++i)
      recorder.add_turn(begin + i * (kLength + gap), kLength, 1 + i / 2500, 7);
    std::uint64_t fired = 0;
    std::int64_t length = 0, last = 0;
    for (const RecordedEvent& e : recorder.since(0)) {
      fired += static_cast<std::uint64_t>(e.tag), length += e.length_ns;
      BOOST_TEST(e.begin_ns >= last);
      last = e.begin_ns + e.length_ns;
    }
    return std::tuple{recorder.since(0).size(), fired, length};
  };
  FlightRecorder close, apart, traced;
  const auto [few, fired, length] = turns(close, 100);
  BOOST_TEST(few < 50u);
  BOOST_TEST(few >= 12u);  // a few milliseconds at most, and one run
  BOOST_TEST(fired == 5000u * 7);
  BOOST_TEST(length >= TickClock::now().nanoseconds(5000 * 10'000) * 99 / 100);
  BOOST_TEST(std::get<0>(turns(apart, 1'000'000)) == FlightRecorder::kAlways);
  traced.trace(true);
  BOOST_TEST(std::get<0>(turns(traced, 100)) == 5000u);
}

BOOST_AUTO_TEST_CASE(events_that_began_before_the_question_are_in_the_answer) {
  FlightRecorder recorder;
  const TickClock clock = TickClock::now();
  const std::uint64_t now = ticks(), second = clock.ticks_of(1'000'000'000);
  recorder.add({RecordedEvent::Kind::kernel, false, 0, now - 5 * second, second, 1, 0, 0});
  recorder.add({RecordedEvent::Kind::kernel, false, 1, now - 6 * second, 4 * second, 1, 0, 0});
  const auto heard = recorder.since(clock.at_ticks(now - 3 * second), clock);
  BOOST_REQUIRE(heard.size() == 1u);
  BOOST_TEST(heard[0].node == 1);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
