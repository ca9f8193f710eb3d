// Training records in the report of any node: their owner and its clock, bounded in number, and
// invalid ones of a peer.
#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include <troupe/cluster/inspect/inspection_json.hpp>
#include <troupe/ops/format/records.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(scalars_test)

namespace {

using json = nlohmann::json;

std::string told_by(const ClusterNode& node, std::int64_t since = INT64_MIN) {
  return scalars_json(node.inspect({.kind = NodeQuestion::Kind::scalars, .since_step = since},
                                   std::chrono::seconds(3)));
}

}  // namespace

BOOST_AUTO_TEST_CASE(any_node_reports_the_records_of_all) {
  Nodes nodes(3, stepped(), Between::simulation);
  for (std::size_t i = 0; i < nodes.size(); ++i) BOOST_TEST(told_by(nodes[i]).empty());
  Records of_b, of_c, later;
  for (int step = -1; step < 10; ++step) of_b.scalar("loss", step, 1.0 + step);
  of_c.scalar("loss", 4, 0.5);
  nodes[1].tell_of(of_b);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const json said = json::parse(told_by(nodes[i]));
    BOOST_TEST(said["version"] == 2);
    BOOST_REQUIRE(said["series"].size() == 1u);
    const json& series = said["series"][0];
    BOOST_TEST(series["name"] == "loss");
    BOOST_TEST(series["kind"] == "scalar");
    BOOST_TEST(series["node"] == "b");
    BOOST_TEST(series["points"].size() == 11u);
    BOOST_TEST(json::parse(told_by(nodes[i], 7))["series"][0]["points"].size() == 2u);
  }
  nodes[2].tell_of(of_c);
  const json both = json::parse(told_by(nodes[0]))["series"];
  BOOST_REQUIRE(both.size() == 2u);
  BOOST_TEST(both[0]["node"] == "b");
  BOOST_TEST(both[1]["node"] == "c");
  // Several series of one node: the last counts; when it is gone, the one before.
  nodes[2].tell_of(later);
  BOOST_TEST(json::parse(told_by(nodes[0]))["series"].size() == 1u);
  nodes[2].forget(later);
  BOOST_TEST(json::parse(told_by(nodes[0]))["series"].size() == 2u);
  nodes[1].forget(of_b), nodes[2].forget(of_c);
  BOOST_TEST(told_by(nodes[0]).empty());
}

// Other nodes get as much as fits; a node's own page has all.
BOOST_AUTO_TEST_CASE(many_curves_are_thinned_for_others, *boost::unit_test::label("one_thread")) {
  Nodes nodes(2, stepped(), Between::simulation);
  Records records;
  constexpr int kCurves = 200, kSteps = 1000;
  for (int c = 0; c < kCurves; ++c)
    for (int step = 0; step < kSteps; ++step)
      records.scalar("curve " + std::to_string(c), step, 1.0 / (3 + step));
  records.text("sample", 3, "In the beginning");
  nodes[0].tell_of(records);
  const std::string own = told_by(nodes[0]), others = told_by(nodes[1]);
  BOOST_TEST(own.size() > NodeReport::kMostScalars);
  BOOST_TEST(others.size() < NodeReport::kMostScalars + (1 << 16));  // and their names
  const json all = json::parse(own)["series"], some = json::parse(others)["series"];
  BOOST_REQUIRE(some.size() == all.size());
  for (std::size_t i = 0; i < some.size(); ++i) {
    BOOST_TEST(some[i]["name"] == all[i]["name"]);
    BOOST_REQUIRE(!some[i]["points"].empty());
    BOOST_TEST(some[i]["points"].back()[0] == all[i]["points"].back()[0]);  // the last is there
    if (all[i]["kind"] != "scalar") continue;
    BOOST_TEST(some[i]["points"].size() < all[i]["points"].size());
    BOOST_TEST(some[i]["points"].size() > 100u);
  }
}

BOOST_AUTO_TEST_CASE(times_are_by_the_askers_clock_and_nonsense_is_left_out) {
  const auto said = [](const std::string& scalars) {
    NodeAnswer a;
    a.member.name = "b", a.has_answered = true, a.offset_ns = 100, a.report.scalars = scalars;
    return scalars_json({a});
  };
  const json series = json::parse(said(
      R"([{"name": "x", "kind": "scalar", "points": [[1, 1100, 0.5], [2, -5, null]]}])"))["series"];
  BOOST_REQUIRE(series.size() == 1u);
  BOOST_TEST(series[0]["points"] == json::parse("[[1, 1000, 0.5], [2, -105, null]]"));
  for (const char* nonsense : {"", "{", "3", "{\"name\": 1}", "null"})
    BOOST_TEST(said(nonsense).empty(), nonsense);
  for (const char* nonsense :
       {"[1, null, []]", R"([{"name": 1, "kind": "scalar", "points": []}])",
        R"([{"name": "x", "points": []}])", R"([{"name": "x", "kind": "scalar", "points": 3}])"})
    BOOST_TEST(json::parse(said(nonsense))["series"].empty(), nonsense);
  const json few = json::parse(said(
      R"([{"name": "x", "kind": "scalar", "points": [[1, 2], 3, ["a", 1, 1], [1, 1.5, 1], [7, )"
      R"(100, 1]]}])"))["series"];
  BOOST_TEST(few[0]["points"] == json::parse("[[7, 0, 1]]"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
