// Not under tsan: it has one thread.
// Hybrid clocks, and the merge of the events of several nodes by them.
#include <troupe/actors/events/event_merger.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <map>
#include <random>

#include <fmt/format.h>

#include <troupe/actors/events/direct_run.hpp>
#include <troupe/test/actors/events/streams.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::events {

BOOST_AUTO_TEST_SUITE(event_merger_test, TROUPE_ONE_THREAD)

namespace {
using namespace troupe::test;

FlowEvent at(Time end, const char* node, const char* kind, const char* name,
             std::uint64_t flow = 0) {
  return {{end - 1, 1, node, "t", kind, name}, flow};
}

std::string text_of(const EventMerger::Part& part) {
  std::string out;
  for (const EngineEvent& e : part.events)
    out += fmt::format("{} {} {}; ", e.begin + e.length, e.kind, e.name);
  return out + (part.guarantee == kNever ? "G(never)" : fmt::format("G({})", part.guarantee));
}
}  // namespace

BOOST_AUTO_TEST_CASE(a_clock_follows_physical_time_and_causes) {
  HybridClock a, b;
  BOOST_TEST(a.stamp(10) == 10);
  BOOST_TEST(a.stamp(10) == 11);  // the physical clock stands still
  BOOST_TEST(a.stamp(5) == 12);   // it goes back
  BOOST_TEST(b.stamp(3, a.last()) == 13);
  BOOST_TEST(b.stamp(40) == 40);
  b.pass(50);
  BOOST_TEST(b.stamp(45) == 51);
}

BOOST_AUTO_TEST_CASE(a_receive_is_stamped_after_its_send) {
  EventMerger merger({.patience = 1000});
  // the clock of b is 50 behind
  merger.add("a", {at(100, "a", "send", "e", 7)}, 120, 120);
  merger.add("b", {at(60, "b", "receive", "e", 7), at(61, "b", "kernel", "k")}, 120, 120);
  const EventMerger::Part part = merger.take(120);
  BOOST_TEST(text_of(part) == "100 send e; 101 receive e; 102 kernel k; G(120)");
  BOOST_TEST(merger.most_ahead() == 41);
}

BOOST_AUTO_TEST_CASE(a_receive_waits_until_its_send_must_be_there) {
  EventMerger merger({.patience = 1000});
  merger.add("a", {}, 50, 50);
  merger.add("b", {at(60, "b", "receive", "e", 7), at(70, "b", "kernel", "k")}, 80, 80);
  BOOST_TEST(text_of(merger.take(80)) == "G(50)");
  merger.add("a", {at(58, "a", "send", "e", 7)}, 90, 90);
  BOOST_TEST(text_of(merger.take(90)) == "58 send e; 60 receive e; 70 kernel k; G(80)");
  // a send that was overwritten is waited for no longer than its clock
  merger.add("b", {at(85, "b", "receive", "e", 8)}, 95, 95);
  BOOST_TEST(text_of(merger.take(95)) == "85 receive e; G(90)");
}

BOOST_AUTO_TEST_CASE(a_lost_node_holds_the_guarantee_for_its_patience) {
  EventMerger merger({.patience = 100});
  merger.add("a", {}, 10, 10);
  merger.add("b", {at(5, "b", "kernel", "k")}, 10, 10);
  BOOST_TEST(text_of(merger.take(10)) == "5 kernel k; G(10)");
  merger.add("a", {}, 110, 110);
  BOOST_TEST(text_of(merger.take(110)) == "G(10)");  // b may still answer
  merger.add("a", {}, 120, 120);
  BOOST_TEST(text_of(merger.take(120)) == "G(120)");
  BOOST_TEST(!merger.clocks(120).at(1).holds);
  // b returns with an event of the time in between, and a new one
  merger.add("b", {at(50, "b", "kernel", "late"), at(130, "b", "kernel", "new")}, 140, 140);
  merger.add("a", {}, 150, 150);
  BOOST_TEST(text_of(merger.take(150)) == "130 kernel new; G(140)");
  BOOST_TEST(merger.late() == 1u);
  // membership ends the wait at once
  merger.end("b");
  BOOST_TEST(text_of(merger.take(150)) == "G(150)");
}

BOOST_AUTO_TEST_CASE(an_estimate_that_changes_breaks_no_guarantee) {
  EventMerger merger({});
  merger.add("a", {at(10, "a", "kernel", "k")}, 20, 20);
  BOOST_TEST(text_of(merger.take(20)) == "10 kernel k; G(20)");
  merger.add("a", {at(18, "a", "kernel", "l")}, 40, 40);  // by a better offset it ended before
  BOOST_TEST(text_of(merger.take(40)) == "21 kernel l; G(40)");
  BOOST_TEST(merger.late() == 0u);
}

// Three nodes with clocks that are up to 500 apart pass tokens on; each reports at its own pace.
BOOST_AUTO_TEST_CASE(random_histories_keep_causes_and_guarantees) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    const Time skew[] = {0, static_cast<Time>(random() % 500), -static_cast<Time>(random() % 500)};
    std::vector<FlowEvent> of[3];
    Time clocks[3] = {1000, 1000, 1000};
    for (std::uint64_t flow = 1; flow <= 200; ++flow) {
      const std::size_t from = random() % 3, to = (from + 1 + random() % 2) % 3;
      clocks[from] += 1 + static_cast<Time>(random() % 20);
      const Time sent = clocks[from];
      of[from].push_back(at(sent + skew[from], "n", "send", "e", flow));
      clocks[to] = std::max(clocks[to], sent) + 1 + static_cast<Time>(random() % 20);
      of[to].push_back(at(clocks[to] + skew[to], "n", "receive", "e", flow));
    }
    EventMerger merger({.patience = 1'000'000});
    for (const char* node : {"0", "1", "2"}) merger.add(node, {}, kNever, 1000);
    std::size_t given[3] = {}, taken = 0;
    std::map<std::string, Time> last;
    Time guarantee = kNever, now = 1000;
    std::vector<EngineEvent> out;
    while (taken < 400 && now < 100'000) {
      now += static_cast<Time>(random() % 80);
      for (std::size_t n = 0; n < 3; ++n) {
        if (random() % 3 == 0) continue;  // it answers another time
        std::vector<FlowEvent> fresh;
        while (given[n] < of[n].size() && of[n][given[n]].event.begin + 1 <= now + skew[n])
          fresh.push_back(of[n][given[n]++]);
        merger.add(fmt::format("{}", n), std::move(fresh), now + skew[n], now);
      }
      const EventMerger::Part part = merger.take(now);
      for (const EngineEvent& e : part.events) {
        BOOST_TEST_REQUIRE(e.begin + e.length > guarantee, "seed " << seed);
        out.push_back(e);
      }
      BOOST_TEST_REQUIRE(part.guarantee >= guarantee);
      guarantee = part.guarantee;
      taken += part.events.size();
    }
    BOOST_TEST(taken == 400u, "seed " << seed << ": " << taken << ", late " << merger.late());
    BOOST_TEST(merger.late() == 0u);
  }
}

// The alarms of standing queries over the events of three nodes, as they come.
BOOST_AUTO_TEST_CASE(alarms_of_three_nodes) {
  const auto run = [](const char* name, const std::vector<FlowEvent>& all, Time until) {
    EventMerger merger({.patience = 100});
    Ran ran(standing_query(name, 100));
    Key key = 0;
    for (Time now = 20; now <= until; now += 20) {
      for (const char* node : {"a", "b", "c"}) {
        if (std::string(node) == "c" && now > 100) continue;  // c is lost
        std::vector<FlowEvent> fresh;
        for (const FlowEvent& e : all)
          if (e.event.node == node && e.event.begin + 1 > now - 20 && e.event.begin + 1 <= now)
            fresh.push_back(e);
        fresh.push_back(at(now, node, "heartbeat", "answer"));
        merger.add(node, std::move(fresh), now, now);
      }
      EventMerger::Part part = merger.take(now);
      std::vector<Batch> batches = finished_batches(part.events, key);
      if (batches.empty()) batches.emplace_back(finished_schema());
      batches.back().guarantee = part.guarantee;
      for (Batch& batch : batches) ran.run.feed("engine", std::move(batch));
    }
    return ran.coalesced();
  };
  BOOST_TEST(run("missed-heartbeat", {}, 400) == R"([200,201):("c"))");
  BOOST_TEST(run("stalled-edges",
                 {at(30, "a", "send", "e", 1), at(50, "b", "receive", "e", 1),
                  at(60, "a", "send", "f", 2)},
                 400) == R"([160,161):("a", "f"))");
  BOOST_TEST(run("alert-once", {at(30, "a", "send", "f", 1), at(50, "a", "send", "f", 2)}, 400) ==
             R"([130,250):("f", 2))");
  BOOST_TEST(run("queue-growth", {at(10, "a", "send", "e", 1), at(110, "a", "send", "e", 2)},
                 400) == R"([100,200):("e", 1, 1))");
  std::vector<FlowEvent> kernels;
  for (int i = 0; i < 8; ++i) kernels.push_back(at(20 + i, "a", "kernel", "m"));
  kernels.push_back({{30, 40, "b", "t", "kernel", "m"}, 0});
  BOOST_TEST(run("stragglers", kernels, 400).find(R"([0,100):("b", "m")") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::events
