// Not under tsan: it has one thread.
// Channels and true edges of a recorded trace.
#include <troupe/actors/dependence/trace_channels.hpp>

#include <boost/test/unit_test.hpp>

#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>

BOOST_AUTO_TEST_SUITE(trace_truth_test, TROUPE_ONE_THREAD)

namespace {
using namespace troupe;
using namespace troupe::dependence;

// Two nodes: `x` fires on a and sends to b; a token of `y` has lost its receive.
const char* const kTrace = R"([
{"ph":"M","name":"process_name","pid":1,"args":{"name":"node a"}},
{"ph":"M","name":"process_name","pid":2,"args":{"name":"node b"}},
{"ph":"X","cat":"firing","name":"x","ts":1,"dur":2,"pid":1,"tid":1},
{"ph":"X","cat":"send","name":"send x","ts":3,"dur":0.5,"pid":1,"tid":1},
{"ph":"s","name":"token","cat":"token","id":"7","ts":3,"pid":1,"tid":1},
{"ph":"X","cat":"send","name":"send y","ts":4,"dur":0.5,"pid":1,"tid":1},
{"ph":"s","name":"token","cat":"token","id":"8","ts":4,"pid":1,"tid":1},
{"ph":"X","cat":"receive","name":"receive z","ts":2,"dur":0.5,"pid":2,"tid":3},
{"ph":"X","cat":"receive","name":"receive x","ts":9,"dur":0.5,"pid":2,"tid":3},
{"ph":"f","bp":"e","name":"token","cat":"token","id":"7","ts":9.4,"pid":2,"tid":3},
{"ph":"X","cat":"firing","name":"y","ts":20,"dur":2,"pid":2,"tid":3}])";
}  // namespace

BOOST_AUTO_TEST_CASE(arrows_and_names_are_true_edges) {
  const Edges expected{{"node a: send x", "node b: receive x"}, {"node a: x", "node a: send x"}};
  BOOST_TEST((true_edges_of(kTrace, true) == expected));
  const Edges plain{{"send x", "receive x"}, {"x", "send x"}};
  BOOST_TEST((true_edges_of(kTrace, false) == plain));
  BOOST_TEST(test::refusal([] { true_edges_of("{}", true); }, Code::data_loss)
                 .starts_with("this is no trace"));
}

BOOST_AUTO_TEST_CASE(channels_are_named_as_the_edges_are) {
  const TraceChannels channels =
      channels_of(events::events_of_trace(kTrace), {"firing", "send", "receive"}, 10);
  BOOST_TEST(channels.has_nodes);
  std::string names;
  for (const Channel& channel : channels.channels) names += channel.name + ", ";
  BOOST_TEST(names ==
             "node a: send x, node a: send y, node a: x, node b: receive x, "
             "node b: receive z, node b: y, ");
  // a node's own answer has the bare name
  BOOST_TEST(channel_of({0, 0, "a", "", "send", "x"}, false) == "send x");
}

BOOST_AUTO_TEST_CASE(graph_is_judged_between_its_channels) {
  DependenceGraph graph;
  graph.channels = {{"a", {}}, {"b", {}}, {"c", {}}};
  graph.edges = {{.from = 0, .to = 1}, {.from = 0, .to = 2}};
  judge(graph, {{"a", "b"}, {"b", "c"}, {"c", "elsewhere"}});
  BOOST_TEST(graph.truth->text() == "precision 0.50, recall 0.50: 1 right, 1 wrong, 1 missed");
  BOOST_TEST(text_of(graph).find("against the true edges: precision 0.50") != std::string::npos);
  BOOST_TEST(json_of(graph).find("\"truth\":{\"missed\":1,\"precision\":0.5") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
