// The engine's events of three nodes as a source of standing queries: stamps, losses, alarms.
#include <boost/test/unit_test.hpp>

#include <map>
#include <set>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include <troupe/actors/events/direct_run.hpp>
#include <troupe/actors/events/table.hpp>
#include <troupe/cluster/inspect/event_feed.hpp>
#include <troupe/cluster/inspect/inspection_reporters.hpp>
#include <troupe/ops/format/records.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/reader.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/troupe.hpp>

namespace troupe {

TROUPE_OP(TestHolds) {
  op.doc("In its kernel until its run is cancelled, where it is told to stay.");
  op.inputs(1, -1);
  op.side_effect();
  op.infer([](Inference& c) { c.output(DType::f32, Shape{}); });
  op.run([](KernelContext& c) {
    while (c.input(0).at(0) != 0 && !c.run().cancelled.load(std::memory_order_acquire))
      std::this_thread::yield();
    c.set(0, Tensor::scalar(0.f));
  });
}

}  // namespace troupe

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(event_feed_test)

namespace {

using namespace std::chrono_literals;
using events::Batch, events::EngineEvent;

/// A feed that is asked by hand.
FeedOptions by_hand() {
  FeedOptions options;
  options.period = 0s;
  options.answer = 3s;
  return options;
}

std::map<std::string, int> kinds_of(const std::vector<EngineEvent>& all) {
  std::map<std::string, int> kinds;
  for (const EngineEvent& e : all) ++kinds[e.kind];
  return kinds;
}

/// A program of three nodes: b and c compute for a. Its plan, and with it the recorders, stay.
struct OverThree {
  Graph g;
  Function f;
  explicit OverThree(Nodes& nodes) {
    Expr x = g.input("x", DType::f32, Shape{}), y, z;
    {
      auto here = g.on_device("/node:a/cpu:0");
      y = g.named(x - 1.0, "w");
    }
    {
      auto there = g.on_device("/node:b/cpu:0");
      y = g.named(y + 1.0, "y");
    }
    {
      auto there = g.on_device("/node:c/cpu:0");
      z = g.named(y * 2.0, "z");
    }
    auto here = g.on_device("/node:a/cpu:0");
    f = nodes.engine().compile(g, {x}, {z + 3.0});
  }
  void run(int times) {
    for (int i = 0; i < times; ++i) BOOST_TEST(f({Tensor::scalar(1.0f)})[0].at(0) == 5.0);
  }
};

/// A standing query over a feed.
struct Standing {
  Standing(const char* name, std::chrono::nanoseconds window)
      : run(events::standing_query(name, window.count()), [this](std::size_t, const Batch& batch) {
          rows += batch.size(), text += text_of(batch);
        }) {}
  void take(EventFeed& feed) {
    for (Batch& batch : feed.take(place)) run.feed("engine", std::move(batch));
  }
  std::size_t rows = 0;
  std::string text;
  Subscription place;
  events::DirectRun run;
};

}  // namespace

BOOST_AUTO_TEST_CASE(events_of_all_nodes_come_once_and_causes_first) {
  Nodes nodes(3);
  OverThree program(nodes);
  EventFeed feed(nodes[0], by_hand());
  Subscription place = feed.subscribe();
  std::vector<EngineEvent> all;
  events::Time guarantee = events::kNever;
  for (int round = 0; round < 4; ++round) {
    program.run(5);
    feed.poll();
    const EventFeed::Part part = feed.after(place.next, SIZE_MAX);
    BOOST_TEST(part.lost == 0u);
    for (const EngineEvent& e : part.events) {
      BOOST_TEST(e.begin + e.length > guarantee);
      all.push_back(e);
    }
    BOOST_TEST(part.guarantee > guarantee);
    guarantee = part.guarantee;
    place.next = part.next;
  }
  const auto kinds = kinds_of(all);
  BOOST_TEST(kinds.at("membership") == 3);
  BOOST_TEST(kinds.at("heartbeat") == 12);
  BOOST_TEST(kinds.at("send") > 0);
  BOOST_TEST(kinds.at("receive") > 0);
  std::set<std::string> of;
  for (const EngineEvent& e : all)
    if (e.kind == "turn") of.insert(e.node);
  BOOST_TEST((of == std::set<std::string>{"a", "b", "c"}));
  // by name, no receive comes before as many sends
  std::map<std::string, int> in_flight;
  for (const EngineEvent& e : all) {
    if (e.kind == "send") ++in_flight[e.name];
    if (e.kind == "receive") BOOST_TEST(--in_flight[e.name] >= 0, e.name);
  }
  BOOST_TEST(feed.counts().late == 0u);
}

BOOST_AUTO_TEST_CASE(one_node_alone_can_be_subscribed_to) {
  Nodes nodes(3);
  OverThree program(nodes);
  FeedOptions options = by_hand();
  options.node = "b";
  EventFeed feed(nodes[0], options);
  program.run(5);
  feed.poll();
  const std::vector<EngineEvent> events = feed.after(0, SIZE_MAX).events;
  BOOST_TEST(!events.empty());
  for (const EngineEvent& e : events) BOOST_TEST(e.node == "b", e.kind);
}

BOOST_AUTO_TEST_CASE(a_slow_subscriber_loses_the_oldest_and_knows_how_many) {
  Nodes nodes(3);
  OverThree program(nodes);
  FeedOptions options = by_hand();
  options.room = 10;
  EventFeed feed(nodes[0], options);
  Subscription slow = feed.subscribe();
  std::uint64_t made = 0, taken = 0;
  for (int round = 0; round < 4; ++round) {
    program.run(5);
    feed.poll();
  }
  made = feed.after(UINT64_MAX, 1).next;
  for (const Batch& batch : feed.take(slow)) taken += batch.size();
  BOOST_TEST(taken == 10u);
  BOOST_TEST(slow.lost == made - 10);
  // in parts, with the guarantee behind the last one
  EventFeed::Part part = feed.after(made - 10, 4);
  BOOST_TEST(part.events.size() == 4u);
  BOOST_TEST(part.guarantee == events::kNever);
  part = feed.after(part.next, SIZE_MAX);
  BOOST_TEST(part.events.size() == 6u);
  BOOST_TEST(part.guarantee > 0);
}

BOOST_AUTO_TEST_CASE(firings_and_training_records_come_if_asked_for) {
  Nodes nodes(3);
  OverThree program(nodes);
  FeedOptions options = by_hand();
  options.firings = true;
  EventFeed feed(nodes[0], options);
  Records records;
  records.scalar("loss", 1, 0.5);
  nodes[2].tell_of(records);
  feed.poll();
  records.scalar("loss", 2, 0.25);
  program.run(5);
  feed.poll();
  const std::vector<EngineEvent> all = feed.after(0, SIZE_MAX).events;
  BOOST_TEST(kinds_of(all)["firing"] > 0);
  BOOST_TEST(kinds_of(all)["record"] == 1);  // an earlier record is no event
  for (const EngineEvent& e : all)
    if (e.kind == "record") BOOST_TEST((e.node == "c" && e.name == "loss"));
  nodes[2].forget(records);
}

// c stops answering; a window later its alarm comes, though no guarantee of c does.
BOOST_AUTO_TEST_CASE(a_missed_heartbeat_is_reported_and_holds_nothing) {
  Nodes nodes(3, stepped(3), Between::simulation);
  FeedOptions options = by_hand();
  options.answer = 300ms;
  options.patience = 1s;
  EventFeed feed(nodes[0], options);
  Standing missed("missed-heartbeat", 500ms), states("membership", 1s);
  feed.poll();
  missed.take(feed);
  BOOST_TEST(missed.rows == 0u);
  nodes.network().kill("c");
  const auto end = std::chrono::steady_clock::now() + 60s;
  while ((missed.text.find("(\"c\")") == std::string::npos ||
          states.text.find("(\"c\", \"dead\")") == std::string::npos) &&
         std::chrono::steady_clock::now() < end) {
    feed.poll();
    missed.take(feed);
    states.take(feed);
  }
  BOOST_TEST(missed.text.find("(\"c\")") != std::string::npos, missed.text);
  BOOST_TEST(missed.text.find("(\"b\")") == std::string::npos, missed.text);
  BOOST_TEST(states.text.find("(\"c\", \"dead\")") != std::string::npos, states.text);
  const EventFeed::Counts counts = feed.counts();
  events::Time held = events::kForever;
  for (const auto& clock : counts.clocks)
    if (clock.name == "a") held = clock.complete_until;
  BOOST_TEST(feed.after(UINT64_MAX, 1).guarantee == held);
}

// The partition on b computes a kernel of another run, so it takes no token of this one. The third
// node watches.
BOOST_AUTO_TEST_CASE(a_stalled_edge_is_reported_over_three_nodes) {
  EngineOptions two;
  two.workers = 2;
  Nodes nodes(3, two);
  Graph g;
  Expr stays = g.input("stays", DType::f32, Shape{}), gate, sent;
  {
    auto here = g.on_device("/node:a/cpu:0");
    sent = g.named(stays * 2.0, "sent");
  }
  {
    auto there = g.on_device("/node:b/cpu:0");
    gate = sent.reader().bind(find_op("TestHolds"), std::vector<Expr>{sent}, {},
                              std::source_location::current())[0];
  }
  const Function f = nodes.engine().compile(g, {stays}, {gate});
  EventFeed feed(nodes[2], by_hand());
  Standing stalled("stalled-edges", 100ms);
  feed.poll();
  stalled.take(feed);
  BOOST_TEST(stalled.text.find("I(") == std::string::npos, stalled.text);
  RunHandle holds = f.start({Tensor::scalar(1.0f)});
  const auto is_held = [&] {
    for (const RunSnapshot& run : nodes[1].engine().snapshot().runs)
      for (const PartitionSnapshot& p : run.partitions)
        if (p.busy_with.starts_with("TestHolds")) return true;
    return false;
  };
  while (!is_held()) {}
  RunHandle waits = f.start({Tensor::scalar(0.0f)});
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (stalled.text.find("(\"a\", ") == std::string::npos &&
         std::chrono::steady_clock::now() < end) {
    feed.poll();
    stalled.take(feed);
  }
  BOOST_TEST(stalled.text.find("(\"a\", ") != std::string::npos, stalled.text);
  holds.cancel();
  BOOST_TEST(waits.wait().ok());
}

BOOST_AUTO_TEST_CASE(a_feed_is_json_for_clients) {
  EventFeed::Part part;
  part.events = {{5, 2, "a", "t", "kernel", "k"}};
  part.next = 9, part.lost = 3;
  EventFeed::Counts counts;
  counts.clocks = {{"", 4, true}, {"a", 4, false}};
  counts.late = 2;
  const nlohmann::json answer = nlohmann::json::parse(stream_json(part, counts));
  BOOST_TEST(answer["guarantee_ns"].is_null());
  BOOST_TEST(answer["nodes"].size() == 1u);
  BOOST_TEST(answer["nodes"][0]["holds"] == false);
  BOOST_TEST(answer["late"] == 2u);
  const events::StreamAnswer back = events::stream_of_answer(stream_json(part, counts));
  BOOST_TEST(back.next == 9u);
  BOOST_TEST(back.lost == 3u);
  BOOST_TEST(back.events.at(0).begin == 5);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
