// The engine's own events: traces, answers of a node, standing queries.
#include <troupe/actors/events/engine_events.hpp>

#include <boost/test/unit_test.hpp>

#include <fmt/format.h>

#include <troupe/actors/dependence/trace_channels.hpp>
#include <troupe/test/actors/events/streams.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::events {

BOOST_AUTO_TEST_SUITE(engine_events_test, TROUPE_ONE_THREAD)

namespace {
using namespace troupe::test;

const std::string kTrace = R"({"displayTimeUnit":"ns","traceEvents":[
{"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"cpu:0"}},
{"ph":"X","name":"MatMul 'm'","cat":"kernel","ts":1.500,"dur":2.000,"pid":1,"tid":2,"args":{}},
{"ph":"b","cat":"wait","name":"w","id":"1.1","pid":1,"tid":2,"ts":0.5,"args":{}},
{"ph":"X","name":"Add 'a'","cat":"kernel","ts":0.250,"dur":0.250,"pid":1,"tid":2,"args":{}},
{"ph":"e","cat":"wait","name":"w","id":"1.1","pid":1,"tid":2,"ts":3.0},
{"ph":"s","bp":"e","name":"token","cat":"token","id":"7","ts":1.0,"pid":1,"tid":2},
{"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"node a"}}
],"otherData":{}})";
}  // namespace

BOOST_AUTO_TEST_CASE(traces_are_read_in_order_of_ends) {
  const auto events = events_of_trace(kTrace);
  std::string all;
  for (const EngineEvent& e : events)
    all += fmt::format("{}+{} {} {} {} {}\n", e.begin, e.length, e.node, e.track, e.kind, e.name);
  BOOST_TEST(all ==
             "250+250 node a cpu:0 kernel Add 'a'\n500+2500 node a cpu:0 wait w\n"
             "1500+2000 node a cpu:0 kernel MatMul 'm'\n");
  const auto trace = dependence::channels_of(events, {"kernel"}, 10);
  BOOST_TEST(trace.channels.size() == 2u);
  BOOST_TEST(trace.end == 3251e-9, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(trace.channels[1].times.at(0) == 1251e-9, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(dependence::channels_of(events, {"kernel"}, 1).left_out == 1u);
  BOOST_TEST(dependence::channels_of(events, {"copy"}, 1).channels.empty());
}

BOOST_AUTO_TEST_CASE(other_texts_are_refused) {
  const auto why = [](const std::string& text) {
    return refusal([&] { events_of_trace(text); }, Code::data_loss);
  };
  BOOST_TEST(why("{}") ==
             "this is no trace: it has no list 'traceEvents'; record one with 'troupe trace -o "
             "FILE'");
  BOOST_TEST(why("[1]").starts_with("this is no trace: event 0 is no object"));
  BOOST_TEST(why("[{").starts_with("this is no trace: byte 3 is not of JSON"));
  BOOST_TEST(why(R"([{"ph":"X","ts":"1"}])").find("event 0 has no time 'ts'") != std::string::npos);
  BOOST_TEST(why(R"([{"ph":"X","ts":1e300,"dur":1}])").find("no time 'ts'") != std::string::npos);
  BOOST_TEST(why(R"([{"ph":"X","ts":1}])").find("no time 'dur'") != std::string::npos);
  BOOST_TEST(why(std::string(100, '[')).find("nested too deeply") != std::string::npos);
  BOOST_TEST(events_of_trace(R"([{"ph":"e","ts":1},{"ph":"X","ts":1,"dur":-4}])").at(0).length ==
             0);
}

BOOST_AUTO_TEST_CASE(answers_of_a_node_are_read) {
  const auto answer = events_of_answer(
      R"({"asked_ns":900,"events":[{"t_ns":5,"dur_ns":7,"node":"a","track":"t","kind":"kernel",)"
      R"("name":"m"}]})");
  BOOST_TEST(answer.complete_until == 900);
  BOOST_TEST(answer.events.at(0).length == 7);
  BOOST_TEST(refusal([] { events_of_answer("{}"); }, Code::data_loss) != "");
  BOOST_TEST(refusal([] { events_of_answer(R"({"events":[]})"); }, Code::data_loss) != "");
}

BOOST_AUTO_TEST_CASE(answers_of_a_stream_are_read) {
  const auto answer = stream_of_answer(
      R"({"next":7,"lost":2,"guarantee_ns":40,"events":[{"t_ns":5,"dur_ns":7,"node":"a",)"
      R"("kind":"heartbeat","name":"answer"}]})");
  BOOST_TEST(answer.next == 7u);
  BOOST_TEST(answer.lost == 2u);
  BOOST_TEST(answer.guarantee == 40);
  BOOST_TEST(answer.events.at(0).kind == "heartbeat");
  BOOST_TEST(stream_of_answer(R"({"next":0,"lost":0,"guarantee_ns":null,"events":[]})").guarantee ==
             kNever);
  BOOST_TEST(refusal([] { stream_of_answer(R"({"next":1,"events":[]})"); }, Code::data_loss)
                 .find("it has no number 'lost'") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(standing_queries_answer) {
  const auto answer = [](const char* name) {
    Ran ran(standing_query(name, 3000));
    Key key = 0;
    for (Batch& batch : finished_batches(events_of_trace(kTrace), key))
      ran.run.feed("engine", std::move(batch));
    ran.run.finish();
    return ran.coalesced();
  };
  BOOST_TEST(answer("activity") ==
             R"([0,3000):("node a", "kernel", "Add 'a'", 1, 250, 250) )"
             R"([3000,6000):("node a", "kernel", "MatMul 'm'", 1, 2000, 2000) )"
             R"([3000,6000):("node a", "wait", "w", 1, 2500, 2500))");
  BOOST_TEST(answer("waits") == R"([3000,6000):("node a", "w", 1, 2500))");
  for (const StandingQuery& q : standing_queries())
    BOOST_TEST(!standing_query(q.name, 1).explain().empty());
  BOOST_TEST(refusal([] { standing_query("stalls", 1); }, Code::not_found) ==
             "there is no standing query 'stalls'; name one of activity, waits, "
             "stalled-edges, silent-nodes, missed-heartbeat, membership, stragglers, queue-growth, "
             "alert-once");
}

BOOST_AUTO_TEST_CASE(standing_queries_find_trouble) {
  const auto answer = [](const char* name, const std::vector<EngineEvent>& events) {
    Ran ran(standing_query(name, 100));
    Key key = 0;
    for (Batch& batch : finished_batches(events, key)) ran.run.feed("engine", std::move(batch));
    ran.guarantee(0, 299);
    return ran.coalesced();
  };
  const auto at = [](Time end, const char* node, const char* kind, const char* name, Time ns = 1) {
    return EngineEvent{end - ns, ns, node, "", kind, name};
  };
  BOOST_TEST(answer("stalled-edges", {at(10, "a", "send", "e"), at(50, "b", "receive", "e"),
                                      at(20, "a", "send", "f"), at(130, "b", "receive", "f")}) ==
             R"([120,121):("a", "f"))");
  BOOST_TEST(answer("silent-nodes", {at(10, "a", "kernel", "m"), at(90, "b", "kernel", "m"),
                                     at(180, "b", "kernel", "m"), at(250, "b", "kernel", "m"),
                                     at(260, "a", "kernel", "m")}) == R"([110,111):("a"))");
  // heartbeats are no events of the node's own, and their absence is reported apart
  BOOST_TEST(answer("silent-nodes", {at(10, "a", "kernel", "m"), at(90, "a", "heartbeat", "answer"),
                                     at(180, "b", "kernel", "m"), at(250, "b", "kernel", "m")}) ==
             R"([110,111):("a"))");
  BOOST_TEST(answer("missed-heartbeat",
                    {at(10, "a", "heartbeat", "answer"), at(20, "b", "heartbeat", "answer"),
                     at(90, "b", "heartbeat", "answer"), at(95, "a", "kernel", "m"),
                     at(180, "b", "heartbeat", "answer"), at(270, "b", "heartbeat", "answer")}) ==
             R"([110,111):("a"))");
  BOOST_TEST(answer("membership",
                    {at(10, "c", "membership", "alive"), at(90, "c", "membership", "dead")}) ==
             R"([10,11):("c", "alive") [90,91):("c", "dead"))");
  BOOST_TEST(answer("stragglers", {at(50, "a", "kernel", "m", 9), at(60, "b", "kernel", "m", 1),
                                   at(70, "b", "kernel", "m", 1), at(80, "b", "kernel", "m", 1)}) ==
             R"([0,100):("a", "m", 3))");
  // e grows by 2, then by 1; f grows, then shrinks
  BOOST_TEST(answer("queue-growth", {at(10, "a", "send", "e"), at(20, "a", "send", "e"),
                                     at(30, "a", "send", "f"), at(110, "a", "send", "e"),
                                     at(120, "a", "send", "e"), at(150, "b", "receive", "e"),
                                     at(160, "b", "receive", "f")}) == R"([100,200):("e", 2, 1))");
}

BOOST_AUTO_TEST_CASE(an_alert_comes_once) {
  Ran ran(standing_query("alert-once", 100));
  BOOST_TEST(ran.plan.consistency().is_strong());
  Key key = 0;
  const auto send = [&](Time end, Time guarantee) {
    std::vector<Batch> batches = finished_batches({{end - 1, 1, "a", "", "send", "e"}}, key);
    batches[0].guarantee = guarantee;
    ran.run.feed("engine", std::move(batches[0]));
  };
  send(10, 10);
  send(50, 50);
  send(90, 300);  // all stalled; the burst ends 100 after the last one
  BOOST_TEST(ran.of("alert-once").events_out == 1u);
  send(400, 800);
  ran.run.finish();
  BOOST_TEST(ran.of("alert-once").events_out == 2u);
  BOOST_TEST(ran.of("alert-once").retractions_out == 0u);
  BOOST_TEST(ran.coalesced() == R"([110,290):("e", 3) [500,600):("e", 1))");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::events
