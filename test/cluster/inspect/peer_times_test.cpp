// Times that peers say: beyond their bounds they are refused, and whatever lies within can be
// reckoned with.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <functional>

#include <troupe/cluster/inspect/inspection_json.hpp>
#include <troupe/test/support/cluster/faulty.hpp>
#include <troupe/test/support/cluster/inspected.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(peer_times_test)

namespace {

using namespace std::chrono_literals;

// inspection_codec.hpp
constexpr std::int64_t kLatest = std::int64_t{1} << 61, kLongest = std::int64_t{1} << 60;

struct Field {
  const char* name;
  std::int64_t most;
  std::function<void(NodeReport&, std::int64_t)> set;
};

const std::vector<Field>& fields() {
  static const std::vector<Field> all{
      {"received", kLatest, [](NodeReport& r, std::int64_t ns) { r.received_ns = ns; }},
      {"answered", kLatest, [](NodeReport& r, std::int64_t ns) { r.answered_ns = ns; }},
      {"made", kLatest, [](NodeReport& r, std::int64_t ns) { r.engine.plans.at(0).made_ns = ns; }},
      {"ended", kLatest,
       [](NodeReport& r, std::int64_t ns) { r.engine.recent.at(0).ended_ns = ns; }},
      {"took", kLongest,
       [](NodeReport& r, std::int64_t ns) { r.engine.errors.at(0).took_ns = ns; }},
      {"a run's age", kLongest,
       [](NodeReport& r, std::int64_t ns) {
         r.engine.runs.at(0).for_so_long = std::chrono::nanoseconds(ns);
       }},
      {"a kernel's age", kLongest,
       [](NodeReport& r, std::int64_t ns) {
         r.partitions.at(0).runs.at(0).waits.at(0).for_so_long = std::chrono::nanoseconds(ns);
       }},
      {"an actor's longest answer", kLongest,
       [](NodeReport& r, std::int64_t ns) {
         r.partitions.at(0).runs.at(0).waits.at(0).longest = std::chrono::nanoseconds(ns);
       }},
      {"a round trip", kLongest,
       [](NodeReport& r, std::int64_t ns) { r.peers.at(0).round_trip_ns = ns; }},
      {"begin", kLatest,
       [](NodeReport& r, std::int64_t ns) {
         r.recorded.at(0).partitions.at(0).events.at(0).begin_ns = ns;
       }},
      {"length", kLongest,
       [](NodeReport& r, std::int64_t ns) {
         r.recorded.at(0).partitions.at(0).events.at(0).length_ns = ns;
       }},
  };
  return all;
}

// A number of nine bytes, as msgpack has it.
std::vector<std::byte> packed(std::int64_t n) {
  std::vector<std::byte> bytes{n < 0 ? std::byte{0xd3} : std::byte{0xcf}};
  for (int shift = 56; shift >= 0; shift -= 8)
    bytes.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(n) >> shift));
  return bytes;
}

Inspected read_back(Message m) { return std::get<Inspected>(read_message(m)); }

}  // namespace

BOOST_AUTO_TEST_CASE(beyond_their_bounds_they_are_refused) {
  constexpr std::int64_t kMark = (std::int64_t{1} << 59) + 0x123456789a;
  const std::vector<std::byte> mark = packed(kMark);
  for (const Field& field : fields()) {
    BOOST_TEST_CONTEXT(field.name) {
      Inspected m = inspected_with_everything();
      field.set(m.report, kMark);
      const Message whole = written(m);
      const auto at = std::search(whole.head.begin(), whole.head.end(), mark.begin(), mark.end());
      BOOST_REQUIRE((at != whole.head.end()));
      const auto with = [&](std::int64_t n) {
        Message changed = whole;
        const std::vector<std::byte> bytes = packed(n);
        std::copy(bytes.begin(), bytes.end(), changed.head.begin() + (at - whole.head.begin()));
        return changed;
      };
      BOOST_CHECK_NO_THROW(read_back(with(field.most)));
      for (const std::int64_t n : {field.most + 1, INT64_MAX, std::int64_t{-1}, INT64_MIN})
        BOOST_TEST(says(refusal([&] { read_back(with(n)); }, Code::data_loss),
                        {"a malformed message", "time"}));
    }
  }
}

// A node whose own clock is wrong sends no time for which peers disconnect it.
BOOST_AUTO_TEST_CASE(written_times_are_clamped_to_the_limits) {
  for (const Field& field : fields())
    for (const std::int64_t n : {INT64_MIN, std::int64_t{-1}, field.most + 1, INT64_MAX}) {
      Inspected m = inspected_with_everything();
      field.set(m.report, n);
      BOOST_CHECK_NO_THROW(read_back(written(m)));
    }
}

// Under UBSan, which ends the process where a sum does not fit.
BOOST_AUTO_TEST_CASE(times_within_the_limits_do_not_overflow) {
  for (int corner = 0; corner < 16; ++corner) {
    const auto extreme = [&](int bit, std::int64_t most) { return corner >> bit & 1 ? most : 0; };
    Nodes nodes(
        2, stepped(1), Between::simulation, {},
        [&](const std::string& name,
            std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
          if (name == "a") return inner;
          return std::make_unique<FaultyTransport>(
              std::move(inner),
              [&](Peer peer, Lane lane, Message m, const FaultyTransport::Send& send) {
                if (auto said = as<Inspected>(m)) {
                  const std::string as_it_is = said->report.name;
                  const std::uint64_t incarnation = said->report.incarnation;
                  said->report = inspected_with_everything().report;
                  said->report.name = as_it_is, said->report.incarnation = incarnation;
                  said->report.received_ns = extreme(0, kLatest),
                  said->report.answered_ns = extreme(1, kLatest);
                  RecordedEvent& event = said->report.recorded[0].partitions[0].events[0];
                  event.begin_ns = extreme(2, kLatest), event.length_ns = extreme(3, kLongest);
                  Wait& wait = said->report.partitions[0].runs[0].waits[0];
                  wait.for_so_long = std::chrono::nanoseconds(extreme(3, kLongest)),
                  wait.longest = std::chrono::nanoseconds(extreme(0, kLongest));
                  for (auto* ended : {&said->report.engine.recent, &said->report.engine.errors})
                    ended->at(0).ended_ns = extreme(2, kLatest);
                  m = written(*said);
                }
                send(peer, lane, std::move(m));
              });
        });
    const ClusterReport report = nodes[0].inspect({.kind = NodeQuestion::Kind::events}, 500ms);
    BOOST_REQUIRE(report.size() == 2u);
    BOOST_TEST(report[1].has_answered, report[1].why);
    BOOST_TEST(!trace_json(report).empty());
    BOOST_TEST(!events_json(report, 0, INT64_MIN, INT64_MAX, 100).empty());
    BOOST_TEST(!state_json("a", report).empty());
    nodes[0].diagnose(1s, 500ms);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
