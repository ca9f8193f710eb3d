// The report on a node that does not answer: the time of its last message, and not how long it had
// been well before.
#include <boost/test/unit_test.hpp>

#include <fmt/format.h>

#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(silence_test)

namespace {

using namespace std::chrono_literals;

double in_seconds(Time t) { return std::chrono::duration<double>(t).count(); }

/// The seconds that stand behind these words; below 0: they are not there.
double seconds_behind(const std::string& text, const std::string& words) {
  const auto at = text.find(words);
  return at == std::string::npos ? -1 : std::stod(text.substr(at + words.size()));
}

/// B had been silent for `least` to `most` when this was said: it was heard last up to a heartbeat
/// earlier, or a little later, by what was still on its way.
void check_heard(const std::string& text, Time least, Time most) {
  const double ago = seconds_behind(text, "last message ");
  BOOST_TEST(ago >= in_seconds(least) - 0.1, text);
  BOOST_TEST(ago <= in_seconds(most) + in_seconds(RouterOptions().heartbeat) + 0.1, text);
}

}  // namespace

// It has been up for long, and is not suspected yet.
BOOST_AUTO_TEST_CASE(a_silent_node_is_named_with_its_last_time) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Nodes nodes(2, stepped(seed), Between::simulation);
    Graph g;
    auto there = g.on_device("/node:b/cpu:0");
    Expr taken = g.fifo_queue("jobs", {{DType::f32, Shape{}}}, 8).dequeue()[0];
    auto here = g.on_device("/node:a/cpu:0");
    RunHandle run = nodes.engine().compile(g, {}, {taken * 2.0}).start({});
    nodes.until(60s, [] { return false; });
    nodes.network().partition({"b"});  // as a stopped process looks from here
    const Time began = nodes.network().now();
    const NodeAnswer b = nodes[0].inspect({}, 300ms).at(1);
    BOOST_TEST(!b.has_answered);
    BOOST_TEST((b.member.state == MemberState::alive), b.why);
    BOOST_TEST(b.why.starts_with("no answer within 0.3 s; last message "), b.why);
    // and nothing of a state that it is not known to have left
    BOOST_TEST(b.why.ends_with(" s ago"), b.why);
    const Time silent = nodes.network().now() - began;
    check_heard(b.why, silent, silent);

    const Time asked = nodes.network().now();
    const std::vector<Diagnosis> said = nodes[0].diagnose();
    BOOST_TEST((nodes.network().now() - asked <= 2s));
    BOOST_REQUIRE_MESSAGE(said.size() == 1u,
                          fmt::format("seed {}: {} verdicts", seed, said.size()));
    for (const char* part :
         {"node 'b' takes part and does not answer", "no answer within 0.3 s; last message "})
      BOOST_TEST(said[0].text.find(part) != std::string::npos, said[0].text);
    // by which of its looks does not matter
    check_heard(said[0].text, silent + 300ms, nodes.network().now() - began);
    nodes.network().heal();
    run.cancel();
    while (!run.is_done()) nodes.step();
  }
}

// A node that has been suspected meanwhile is reported as such, with the time; the time
// of its last message does not change by that.
BOOST_AUTO_TEST_CASE(a_suspected_node_is_reported_as_suspected) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Nodes nodes(2, stepped(seed), Between::simulation);
    nodes.until(10s, [] { return false; });
    nodes.network().partition({"b"});
    const Time began = nodes.network().now();
    const auto is_suspected = [&] {
      for (const Member& m : nodes[0].members())
        if (m.name == "b") return m.state == MemberState::suspect;
      return false;
    };
    BOOST_REQUIRE(nodes.until(10s, is_suspected));
    const NodeAnswer b = nodes[0].inspect({}, 10ms).at(1);
    BOOST_TEST(b.why.starts_with("no answer within 0.0 s; last message "), b.why);
    BOOST_TEST(b.why.find("; it has been suspected for ") != std::string::npos, b.why);
    const Time silent = nodes.network().now() - began;
    check_heard(b.why, silent, silent);
    nodes.network().heal();
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
