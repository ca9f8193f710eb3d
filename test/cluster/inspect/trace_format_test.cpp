// Traces are in Chrome's format as viewers read it: whatever was traced, and whatever part of it
// was kept.
#include <boost/test/unit_test.hpp>

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <troupe/cluster/inspect/inspection_json.hpp>
#include <troupe/test/support/chrome_trace.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/process.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(trace_format_test)

namespace {

using json = nlohmann::json;

/// Returns the events that all nodes recorded during `work`, with or without tracing.
template <class Work>
ClusterReport recorded(Nodes& nodes, bool traces, const Work& work) {
  if (traces) nodes[0].inspect({.kind = NodeQuestion::Kind::trace_on, .tracer = 1});
  work();
  return nodes[0].inspect(
      {.kind = traces ? NodeQuestion::Kind::trace_off : NodeQuestion::Kind::events, .tracer = 1});
}

}  // namespace

// The reader itself: one track with a slice in another, an arrow between two tracks, a pair outside
// of tracks, a counter; and each of these with something amiss.
BOOST_AUTO_TEST_CASE(trace_checker_finds_events_that_viewers_drop) {
  const auto slice = [](double ts, double dur, int tid = 1) {
    return json{{"ph", "X"}, {"name", "x"}, {"pid", 1}, {"tid", tid}, {"ts", ts}, {"dur", dur}};
  };
  const auto arrow = [](const char* ph, double ts, int tid) {
    return json{{"ph", ph},  {"name", "token"}, {"cat", "token"}, {"id", "7"},
                {"bp", "e"}, {"pid", 1},        {"tid", tid},     {"ts", ts}};
  };
  const auto half = [](const char* ph, double ts) {
    return json{{"ph", ph}, {"name", "w"}, {"cat", "wait"}, {"id", "1"},
                {"pid", 1}, {"tid", 1},    {"ts", ts}};
  };
  const auto named = [](const char* what, int tid) {
    return json{{"ph", "M"}, {"name", what}, {"pid", 1}, {"tid", tid}, {"args", {{"name", "n"}}}};
  };
  const json good = json::array(
      {named("process_name", 0), named("thread_name", 1), named("thread_name", 2), slice(0, 10),
       slice(1, 2), slice(3, 7), arrow("s", 1.5, 1), slice(4, 2, 2), arrow("f", 4, 2), half("b", 2),
       half("e", 3),
       json{
           {"ph", "C"}, {"name", "c"}, {"pid", 1}, {"tid", 1}, {"ts", 1}, {"args", {{"bytes", 3}}}},
       json{{"ph", "B"}, {"name", "y"}, {"pid", 1}, {"tid", 2}, {"ts", 8}},
       json{{"ph", "E"}, {"pid", 1}, {"tid", 2}, {"ts", 9}}});
  const auto read = [](const json& events) {
    return ChromeTrace(json{{"displayTimeUnit", "ns"}, {"traceEvents", events}});
  };
  BOOST_TEST(read(good).faults.empty(), read(good).text());
  BOOST_TEST(read(good).arrows == 1);
  BOOST_TEST(read(good).pairs == 1);
  const auto with = [&](std::size_t at, const json& change) {
    json bad = good;
    bad[at].merge_patch(change);  // null takes a field away
    return bad;
  };
  const std::vector<std::pair<json, const char*>> bad = {
      {with(3, {{"ph", nullptr}}), "no phase"},
      {with(3, {{"ph", "Z"}}), "an unknown phase"},
      {with(3, {{"tid", nullptr}}), "no process and thread"},
      {with(3, {{"pid", "1"}}), "no process and thread"},
      {with(3, {{"ts", nullptr}}), "no time"},
      {with(3, {{"ts", -1}}), "no time"},
      {with(3, {{"dur", -1}}), "no length"},
      {with(3, {{"name", ""}}), "no name"},
      {with(4, {{"dur", 9.5}}), "lies across the end"},
      {with(5, {{"ts", 0.5}, {"dur", 0.1}}), "begins before the slice"},
      {with(5, {{"tid", 3}}), "a thread without a name"},
      {with(1, {{"tid", 2}}), "a second name"},
      {with(2, {{"args", nullptr}}), "an empty name"},
      {with(0, {{"pid", 2}}), "a process without a name"},
      {with(6, {{"id", "8"}}), "an arrow without one beginning and one end"},
      {with(6, {{"ts", 5}, {"tid", 2}}), "an arrow that runs backwards"},
      {with(8, {{"bp", nullptr}}), "an arrow that ends at what comes next"},
      {with(8, {{"ts", 6}}), "an arrow's end in no slice"},
      {with(6, {{"tid", 2}}), "an arrow's end in no slice"},
      {with(10, {{"id", "2"}}), "ends and has not begun"},
      {with(10, {{"ts", 1}}), "ends what is something else"},
      {with(10, {{"ph", "b"}}), "begins twice"},
      {with(11, {{"args", {{"bytes", "3"}}}}), "a counter's value that is no number"},
      {with(13, {{"ts", 7}}), "ends what is not open innermost"},
      {with(13, {{"tid", 1}}), "ends and has not begun"},
      {with(12, {{"tid", 1}}), "begins and does not end"},
  };
  for (const auto& [events, what] : bad)
    BOOST_TEST(read(events).text().find(what) != std::string::npos,
               what << " is not among: " << read(events).text());
}

BOOST_AUTO_TEST_CASE(trace_of_a_loop_over_two_nodes_is_valid) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Nodes nodes(2, stepped(seed), Between::simulation);
    Graph g;
    Function f = nodes.engine().compile(g, {}, {counted_on_b(g, 50)});
    const json trace = json::parse(trace_json(recorded(nodes, true, [&] {
      f({});
      f({});
    })));
    BOOST_TEST(well_formed(trace).arrows > 50);
    BOOST_TEST(trace["otherData"]["lost"] == 0);
  }
}

// Also of several at once, whose turns and tokens mix.
BOOST_AUTO_TEST_CASE(trace_of_concurrent_runs_is_valid) {
  Nodes nodes(3, stepped_partitions(2), Between::simulation);
  Graph g;
  Function f = nodes.engine().compile(g, {}, {counted_on_b(g, 20)});
  const json trace = json::parse(trace_json(recorded(nodes, true, [&] {
    std::vector<RunHandle> runs;
    for (int i = 0; i < 5; ++i) runs.push_back(f.start({}));
    for (RunHandle& run : runs)
      while (!run.is_done()) nodes.step();
  })));
  BOOST_TEST(well_formed(trace).arrows > 100);
}

// On a device with a stream, whose kernels and copies end outside of turns, and another.
BOOST_AUTO_TEST_CASE(trace_of_a_training_is_valid) {
  Folder folder;
  Graph g;
  Expr x = g.input("x", DType::f32, {8, 4}), t = g.input("t", DType::f32, {8, 1});
  Variable w = g.variable("w", DType::f32, {4, 1}, Initializer::constant(0.1));
  Expr hidden = matmul(x, w.read());
  auto [count, state] = while_loop([](Expr i, Expr) { return i < 4; },
                                   [&](Expr i, Expr v) {
                                     auto there = g.on_device("cpu:0");
                                     return std::tuple{i + 1, tanh(v + 0.1)};
                                   },
                                   std::tuple{g.constant(0), hidden});
  Expr loss = mean(square(state - t));
  Expr step = Adam({.learning_rate = 0.1}).minimize(loss, {w});
  for (const char* device : {"cpu:0", "sim:0"}) {
    EngineOptions options;
    options.default_device = device;
    options.workers = 2;
    Engine engine(options);
    Function f = engine.compile(g, {x, t}, {step, loss});
    for (int n = 0; n < 5; ++n) {
      const std::string path = folder / (device + std::to_string(n));
      f({Tensor::zeros(DType::f32, {8, 4}), Tensor::zeros(DType::f32, {8, 1})}, {.trace = path});
      BOOST_TEST(well_formed(written_trace(path)).slices > 20, device);
    }
  }
}

// Events were overwritten, or exceed a trace: tokens without their other end, turns that began
// before everything else.
BOOST_AUTO_TEST_CASE(trace_without_its_beginning_is_valid) {
  Nodes nodes(2, stepped(3), Between::simulation);
  Graph g;
  Function f = nodes.engine().compile(g, {}, {counted_on_b(g, 1000)});
  const ClusterReport kept = recorded(nodes, false, [&] { f({}); });
  const json latest = json::parse(trace_json(kept));
  BOOST_TEST(latest["otherData"]["lost"] > 0);
  BOOST_TEST(well_formed(latest).arrows > 0);
  const ClusterReport all = recorded(nodes, true, [&] { f({}); });
  for (const std::size_t most :
       {std::size_t{0}, std::size_t{1}, std::size_t{17}, std::size_t{500}}) {
    const json few = json::parse(trace_json(all, 0, 0, most));
    BOOST_TEST(few["otherData"]["lost"] > 0);
    well_formed(few);
  }
}

// For a run that fails: the events that every node has kept, and one node does not answer.
BOOST_AUTO_TEST_CASE(trace_of_a_failed_run_and_a_silent_node_is_valid) {
  Nodes nodes(2, stepped(4), Between::simulation);
  Graph g;
  Expr index = g.input("index", DType::i64, {1}), last = cast(counted_on_b(g, 5), DType::i64);
  auto there = g.on_device("/node:b/cpu:0");
  Expr y =
      g.named(gather(g.constant(Tensor::of<float>({1, 2})), index + last), "\"quoted\"\n\x01<b>");
  Function f = nodes.engine().compile(g, {index}, {y}, {.optimize = false});
  ClusterReport said = recorded(nodes, true, [&] {
    refusal([&] { f({Tensor::of<std::int64_t>({7})}); }, Code::out_of_range);
  });
  const json failed = json::parse(trace_json(said));
  BOOST_TEST(well_formed(failed).arrows > 0);
  BOOST_TEST(failed.dump().find("failed: Gather") != std::string::npos);
  NodeAnswer silent;
  silent.member.name = "c", silent.why = "it is dead";
  said.push_back(silent);
  well_formed(json::parse(trace_json(said)));
  well_formed(json::parse(trace_json({silent})));
  well_formed(json::parse(trace_json({})));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
