// Traces of a node and their duration: no client ends another's trace, and a trace whose client has
// died ends by itself.
#include <boost/test/unit_test.hpp>

#include <algorithm>

#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(tracers_test)

namespace {

using namespace std::chrono_literals;

/// Nodes of which the last computes for ever; without threads.
struct Watched {
  Nodes nodes;
  Graph g;
  RunHandle run;
  explicit Watched(int count) : nodes(count, stepped(1), Between::simulation) {
    auto there = g.on_device("/node:" + last() + "/cpu:0");
    Expr end = while_loop([](Expr i) { return i < 1'000'000'000; }, [](Expr i) { return i + 1; },
                          g.constant(0));
    // the subject is firings of the nodes of a body
    run =
        nodes[nodes.size() - 1].engine().compile(g, {}, {end}, {.resident_loops = false}).start({});
    step();
  }
  ~Watched() {
    run.cancel();
    while (!run.is_done()) nodes.step();
  }
  std::string last() const { return Nodes::name_of(static_cast<int>(nodes.size()) - 1); }
  /// Some 50,000 firings, of which a few times as many fit what a trace holds (Recorder::kGrowth):
  /// none is dropped for later ones.
  void step() {
    for (int i = 0; i < 100; ++i) nodes.step();
  }
  /// Asks the last, by node `who`; how many firings it has drawn.
  std::ptrdiff_t ask(std::size_t who, NodeQuestion::Kind kind) {
    const ClusterReport said = nodes[who].inspect({.kind = kind, .tracer = 1}, 3s, last());
    BOOST_REQUIRE(said.size() == 1u);
    BOOST_TEST(said[0].has_answered, said[0].why);
    std::ptrdiff_t firings = 0;
    for (const RecordedPlan& plan : said[0].report.recorded)
      for (const PartitionSnapshot& p : plan.partitions)
        firings += std::count_if(p.events.begin(), p.events.end(), [](const RecordedEvent& e) {
          return e.kind == RecordedEvent::Kind::firing;
        });
    return firings;
  }
};

}  // namespace

// On the virtual clock: it dies between turning a trace on and turning it off.
BOOST_AUTO_TEST_CASE(trace_ends_by_itself_when_its_requester_has_died) {
  Watched w(2);
  const auto drawn = [&] {
    w.step();
    return w.ask(1, NodeQuestion::Kind::events);
  };
  BOOST_TEST(drawn() == 0);
  w.ask(0, NodeQuestion::Kind::trace_on);
  w.nodes.network().kill("a");
  BOOST_TEST(drawn() > 0);
  w.nodes[1].engine().advance_time(70s);
  BOOST_TEST(drawn() > 0);
  w.nodes[1].engine().advance_time(10s);
  BOOST_TEST(drawn() == 0);
}

// The two number their traces alike.
BOOST_AUTO_TEST_CASE(the_first_of_two_tracers_to_end_leaves_the_trace_on) {
  Watched w(3);
  w.ask(0, NodeQuestion::Kind::trace_on);
  w.ask(1, NodeQuestion::Kind::trace_on);
  w.step();
  const std::ptrdiff_t first = w.ask(0, NodeQuestion::Kind::trace_off);
  BOOST_TEST(first > 0);
  w.step();
  BOOST_TEST(w.ask(1, NodeQuestion::Kind::trace_off) > first);  // with all that was drawn before
  w.step();
  BOOST_TEST(w.ask(1, NodeQuestion::Kind::events) == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
