// Not under tsan: one thread steps the simulation.
// Clocks of nodes that drift, are set, and lie: what one knows of another's is never further off
// than it says.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include <nlohmann/json.hpp>

#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/cluster/inspect/inspection_json.hpp>
#include <troupe/cluster/membership/clock_offset.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/transport/sim/simulated.hpp>
#include <troupe/test/support/chrome_trace.hpp>
#include <troupe/test/support/cluster/faulty.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(clock_offset_test)

namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kMs = 1'000'000, kSecond = 1000 * kMs, kBegin = 1'700'000'000 * kSecond;

/// A clock that was `ahead` at the beginning and gains so many ns a ms.
struct Drifting {
  std::int64_t ahead = 0, gains = 0;
  std::int64_t at(std::int64_t now) const { return now + ahead + (now - kBegin) / kMs * gains; }
};

/// Asks at `now`; the ways take that long.
void ask(ClockOffset& offset, const Drifting& other, std::int64_t now, std::int64_t there,
         std::int64_t back, std::uint64_t incarnation = 1) {
  offset.observe(incarnation, {now, other.at(now + there), other.at(now + there + kMs),
                               now + there + kMs + back});
}

/// Returns the events that a and b recorded of a loop of a's whose body is on b.
ClusterReport recorded_to_and_fro(Nodes& nodes) {
  Graph g;
  Expr last = counted_on_b(g, 100);
  const Function f = nodes.engine().compile(g, {}, {last});
  f({});
  ClusterReport said = nodes[0].inspect({.kind = NodeQuestion::Kind::events});
  BOOST_REQUIRE(said.size() == 2u);
  for (const NodeAnswer& a : said) BOOST_REQUIRE(a.has_answered);
  for (const NodeAnswer& a : said) BOOST_REQUIRE(!a.report.recorded.empty());
  return said;
}

/// Shifts times as if the machine's clock were so far ahead: recorders go by the machine's clock,
/// not by a node's.
void set_ahead(NodeReport& report, std::int64_t ahead) {
  for (RecordedPlan& plan : report.recorded)
    for (PartitionSnapshot& p : plan.partitions) {
      if (p.whole_since_ns > 0) p.whole_since_ns += ahead;
      for (RecordedEvent& e : p.events) e.begin_ns += ahead;
    }
}

}  // namespace

// An hour at 100 ns a ms: an estimate that is never renewed would be 360 ms off in the end.
BOOST_AUTO_TEST_CASE(an_estimate_keeps_its_bound_under_drift) {
  for (const std::int64_t gains : {100, -100, 0, 400}) {
    const Drifting other{-3 * kSecond, gains};
    ClockOffset offset;
    std::minstd_rand random(7);
    ask(offset, other, kBegin, 20'000, 20'000);  // the quickest of all
    std::int64_t worst = 0;
    for (std::int64_t now = kBegin + kSecond; now < kBegin + 3600 * kSecond; now += kSecond) {
      ask(offset, other, now, 50'000 + static_cast<std::int64_t>(random() % (4 * kMs)),
          50'000 + static_cast<std::int64_t>(random() % (4 * kMs)));
      const std::int64_t later = now + 500 * kMs,
                         off = std::abs(offset.offset_ns() - (other.at(later) - later));
      BOOST_REQUIRE(off <= offset.error_ns(later));
      worst = std::max(worst, off);
    }
    BOOST_TEST(worst < 5 * kMs);
  }
}

BOOST_AUTO_TEST_CASE(the_quickest_question_counts_where_clocks_agree) {
  const Drifting other{5 * kMs, 0};
  ClockOffset offset;
  ask(offset, other, kBegin, 100'000, 100'000);
  ask(offset, other, kBegin + 10 * kMs, 6 * kMs, 100'000);  // by itself it would say 8 ms
  BOOST_TEST(offset.offset_ns() == 5 * kMs);
  BOOST_TEST(offset.round_trip_ns() == 200'000);
  ask(offset, other, kBegin + 20 * kMs, 10'000, 10'000);
  BOOST_TEST(offset.round_trip_ns() == 20'000);
}

BOOST_AUTO_TEST_CASE(clock_offset_follows_a_set_clock_and_a_restart_at_once) {
  ClockOffset offset;
  ask(offset, {0, 0}, kBegin, 10'000, 10'000);
  ask(offset, {kSecond, 0}, kBegin + kSecond, kMs, kMs);  // slower, but a second off
  BOOST_TEST(offset.offset_ns() == kSecond);
  // another life: another machine, maybe
  ask(offset, {kSecond + 100'000, 0}, kBegin + 2 * kSecond, 2 * kMs, kMs, 2);
  BOOST_TEST(offset.round_trip_ns() == 3 * kMs);
  offset.observe(2, {0, kBegin, kBegin, kMs});  // this node's own clock was set back
  BOOST_TEST(offset.offset_ns() > kBegin - kSecond);
}

BOOST_AUTO_TEST_CASE(clock_offset_ignores_implausible_times) {
  ClockOffset offset;
  for (const auto& [received, answered] :
       {std::pair<std::int64_t, std::int64_t>{INT64_MIN, INT64_MAX},
        {kBegin, kBegin - 1},
        {-1, 5},
        {kBegin, INT64_MAX},
        {INT64_MAX, INT64_MAX}})
    offset.observe(1, {kBegin, received, answered, kBegin + kMs});
  BOOST_TEST(!offset.is_known());
  BOOST_TEST(offset.offset_ns() == 0);
}

// Two nodes whose clocks drift apart, over a network with delays: each estimates the other's clock
// correctly for half an hour. A request for events later than a time uses the other's clock, and
// never asks for too few.
BOOST_AUTO_TEST_CASE(nodes_know_of_each_other_s_clocks_however_long_they_run) {
  SimulatedNetwork network(3);
  std::vector<std::unique_ptr<ClusterNode>> nodes;
  const Drifting clocks[] = {{0, 200}, {-7 * kSecond, -200}};
  const auto time_of = [&](std::size_t n) { return clocks[n].at(kBegin + network.now().count()); };
  std::vector<std::int64_t> asked_since;
  const auto step = [&] {
    for (auto& node : nodes)
      if (node && node->engine().take_step()) return true;
    return network.step();
  };
  for (std::size_t n = 0; n < 2; ++n) {
    NodeOptions o;
    o.name = n == 0 ? "a" : "b";
    o.incarnation = n + 1;
    o.engine.deterministic = true;
    o.clock = [time_of, n] { return time_of(n); };
    o.step = step;
    if (n == 1) o.join = {"sim://a"};
    o.transport = [&, n](PeerInfo self) -> std::unique_ptr<Transport> {
      self.address = "sim://" + self.name;
      auto made = network.make_transport(self);
      if (n == 1) return made;
      return std::make_unique<FaultyTransport>(
          std::move(made),
          [&](Peer peer, Lane lane, Message message, const FaultyTransport::Send& send) {
            if (const auto question = as<InspectNode>(message);
                question && question->question.kind == NodeQuestion::Kind::events)
              asked_since.push_back(question->question.since_ns);
            send(peer, lane, std::move(message));
          });
    };
    nodes.push_back(std::make_unique<ClusterNode>(std::move(o)));
  }
  nodes[1]->wait_for({"a"}, 60s);
  nodes[0]->wait_for({"b"}, 60s);
  const auto ahead = [&] { return time_of(1) - time_of(0); };
  const std::int64_t most = 20 * kMs;  // ways of up to 5 ms, and what heartbeats put before them
  const std::int64_t at_first = ahead();
  for (int minute = 0; minute < 30; ++minute) {
    for (const Time end = network.now() + 60s; network.now() < end;) step();
    const std::int64_t since = time_of(0) - 10 * kSecond;
    const ClusterReport report =
        nodes[0]->inspect({.kind = NodeQuestion::Kind::events, .since_ns = since});
    BOOST_REQUIRE(report.at(1).has_answered);
    BOOST_TEST(std::abs(report[1].offset_ns - ahead()) < most,
               minute << ": " << report[1].offset_ns - ahead());
    BOOST_REQUIRE(asked_since.size() == static_cast<std::size_t>(minute) + 1);
    if (minute == 0) BOOST_TEST(asked_since[0] == 0);  // nothing is known yet: all
    else {
      // a millisecond: the clocks moved since it was asked
      BOOST_TEST(asked_since.back() <= since + ahead() + kMs);
      BOOST_TEST(asked_since.back() > since + ahead() - 100 * kMs);
    }
  }
  BOOST_TEST(std::abs(ahead() - at_first) > 500 * kMs);  // the value that would be wrong
}

// Whatever b's clock shows, if a knows by how much, the trace is the same to the byte; and so is
// what is reported of events, of which some were written over.
BOOST_AUTO_TEST_CASE(a_trace_is_on_the_askers_clock) {
  Nodes nodes(2, stepped(), Between::simulation);
  ClusterReport said = recorded_to_and_fro(nodes);
  for (RecordedPlan& plan : said[1].report.recorded)
    for (PartitionSnapshot& p : plan.partitions)
      if (!p.events.empty()) p.dropped_events = 1, p.whole_since_ns = p.events.front().begin_ns;
  const auto events_of = [](const ClusterReport& report) {
    return nlohmann::json::parse(events_json(report, 0, 0, INT64_MAX, 100'000));
  };
  const std::string trace = trace_json(said);
  const nlohmann::json events = events_of(said);
  BOOST_TEST(well_formed(nlohmann::json::parse(trace)).arrows > 20);
  BOOST_TEST(events["lost"].size() > 0u);
  for (const std::int64_t ahead : {-7 * kSecond, 7 * kSecond}) {
    ClusterReport other = said;
    other[1].offset_ns = ahead;
    set_ahead(other[1].report, ahead);
    BOOST_TEST((trace_json(other) == trace), ahead);
    const nlohmann::json of_other = events_of(other);
    for (const char* what : {"events", "lost", "dropped"})
      BOOST_TEST((of_other[what] == events[what]),
                 what << " with a clock " << ahead << " ns ahead");
  }
}

// By what a finds out of b's clock: no token arrives before it went by more than half of what its
// question was on the way, and what a and b did together is drawn together.
BOOST_AUTO_TEST_CASE(arrows_of_a_trace_over_different_clocks_point_forward) {
  constexpr std::int64_t kAhead = -7 * kSecond;
  Nodes nodes(1, stepped(), Between::simulation);
  nodes.clock = [] { return epoch_ns() + kAhead; };
  nodes.add("b", stepped());
  nodes[0].wait_for({"b"}, 60s);
  nodes[1].wait_for({"a"}, 60s);
  ClusterReport said = recorded_to_and_fro(nodes);
  BOOST_TEST(std::abs(said[1].offset_ns - kAhead) <= said[1].round_trip_ns / 2 + kMs);
  set_ahead(said[1].report, kAhead);
  const nlohmann::json trace = nlohmann::json::parse(trace_json(said));
  // µs, at most: the loop may be over sooner
  const double off = static_cast<double>(said[1].round_trip_ns / 2 + kMs) * 1e-3;
  BOOST_TEST(well_formed(trace, off).arrows > 20);
  // by node: when its first slice began, and its last ended
  std::map<int, std::pair<double, double>> spans;
  for (const auto& e : trace["traceEvents"]) {
    if (e["ph"] != "X") continue;
    const double begin = e["ts"], end = begin + e["dur"].get<double>();
    auto& [first, last] = spans.try_emplace(e["pid"].get<int>(), begin, end).first->second;
    first = std::min(first, begin), last = std::max(last, end);
  }
  BOOST_REQUIRE(spans.size() == 2u);
  const auto& [a, b] = std::pair{spans.begin()->second, spans.rbegin()->second};
  BOOST_TEST(std::max(a.first, b.first) < std::min(a.second, b.second) + off);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
