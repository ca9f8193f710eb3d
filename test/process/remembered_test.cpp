// Not under asan and tsan: it watches processes of the binary that other suites run in one process.
// Plans that an inspection server keeps from one request to the next: plans of the present life of
// their owner, up to a limit.
#include <boost/test/unit_test.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <troupe/cluster/inspect/inspection_server.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/test/process/cluster.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(remembered_test)

namespace {

using json = nlohmann::json;
using namespace std::chrono_literals;

/// Plans of one node, each of two operations, and a client that watches them.
struct Plans {
  Nodes nodes{1};
  InspectionServer server;
  std::vector<Graph> graphs;
  std::vector<Function> all;
  explicit Plans(std::size_t count, InspectionOptions options = {})
      : server(nodes[0], std::move(options)), graphs(count) {
    for (Graph& g : graphs) {
      Expr x = g.input("x", DType::f32, Shape{});
      // else they would share one plan
      all.push_back(nodes.engine().compile(g, {x}, {x * static_cast<double>(all.size())}));
    }
  }
  json counters(std::size_t plan, std::uint64_t since = 0) const {
    return json_at(server.address(),
                   fmt::format("/api/counters?plan=a/{}&since={}", plan + 1, since));
  }
  std::uint64_t seen(std::size_t plan) const { return counters(plan)["seq"]; }
  /// Returns true if values that have not changed since are sent again.
  bool is_forgotten(std::size_t plan, std::uint64_t since) const {
    return counters(plan, since)["reset"];
  }
};

}  // namespace

// An owner that starts again counts its plans from 1: a request for the first returns the present
// one.
BOOST_AUTO_TEST_CASE(a_plan_of_an_earlier_life_is_not_shown) {
  Nodes nodes(1);
  const InspectionServer server(nodes[0], {});
  const auto get = [&](const std::string& path) { return json_at(server.address(), path); };
  std::uint64_t seq = 0;
  std::string life;
  for (const std::string name : {"first", "second"}) {
    ClusterNode& owner = nodes.add("c");
    nodes[0].wait_for({"c"}, 60s);
    owner.wait_for({"a"}, 60s);
    Graph g;
    Expr x = g.input("x", DType::f32, Shape{});
    Function f = owner.engine().compile(g, {x}, {g.named(x * 2.0, name)});
    f({Tensor::scalar(1.0f)});
    json plan, counters;
    // until its owner has answered in time
    while (!plan.contains("actors")) plan = get("/api/plan?id=c/1");
    bool is_there = false;
    for (const json& row : plan["actors"]["rows"]) is_there = is_there || row[2] == name;
    BOOST_TEST(is_there, plan.dump());
    while (!counters.contains("actors") || counters["actors"]["rows"].empty())
      counters = get("/api/counters?plan=c/1&since=" + std::to_string(seq));
    BOOST_TEST(counters["reset"].get<bool>());  // the other one's number says nothing of this one
    seq = counters["seq"];
    const json state = get("/api/state");
    for (const json& p : state["plans"])
      if (p["id"] == "c/1") {
        BOOST_TEST(p["incarnation"] != life);
        life = p["incarnation"];
      }
    f = Function();
    nodes.remove(1);
  }
  BOOST_TEST(!life.empty());
}

// An actor of the present plan does not show the errors of an earlier one of its name, which other
// nodes still keep.
BOOST_AUTO_TEST_CASE(an_error_of_an_earlier_life_is_not_this_ones) {
  Nodes nodes(1);
  const InspectionServer server(nodes[0], {});
  const auto get = [&](const std::string& path) { return json_at(server.address(), path); };
  for (const bool fails : {true, false}) {
    ClusterNode& owner = nodes.add("c");
    nodes[0].wait_for({"c"}, 60s);
    owner.wait_for({"a"}, 60s);
    Graph g;
    Expr x = g.input("x", DType::i32, {1});
    auto there = g.on_device("/node:a/cpu:0");
    Function f = owner.engine().compile(
        g, {x}, {g.named(gather(g.constant(Tensor::of<float>({1, 2, 3})), x), "picks")},
        {.optimize = false});
    f({Tensor::of<std::int32_t>({1})});
    if (fails) refusal([&] { f({Tensor::of<std::int32_t>({7})}); }, Code::out_of_range);
    const auto is_remembered = [&] {
      const json state = get("/api/state");
      return std::any_of(state["errors"].begin(), state["errors"].end(),
                         [](const json& e) { return e["node"] == "a" && e["plan"] == "c/1"; });
    };
    // the first is, once a has left the run; and while the second is there
    while (!is_remembered()) {}
    json plan;
    // until its owner has answered in time
    while (!plan.contains("actors")) plan = get("/api/plan?id=c/1");
    for (const json& row : plan["actors"]["rows"])
      if (row[2] == "picks")
        BOOST_TEST(get("/api/actor?id=" + row[0].get<std::string>())["errors"].size() ==
                   (fails ? 1u : 0u));
    f = Function();
    nodes.remove(1);
  }
}

// A client that watches all plans asks for one after the other: rows that have not changed since
// are not sent again, for any number of plans.
BOOST_AUTO_TEST_CASE(many_plans_are_remembered) {
  const Plans plans(40);
  std::vector<std::uint64_t> seqs;
  for (std::size_t i = 0; i < 40; ++i) seqs.push_back(plans.seen(i));
  for (std::size_t i = 0; i < 40; ++i) BOOST_TEST(!plans.is_forgotten(i, seqs[i]), i);
}

// Beyond the limit, the plan that was requested longest ago is dropped; a plan that alone is too
// large is kept until the next comes.
BOOST_AUTO_TEST_CASE(cache_drops_the_least_recently_requested_plans) {
  InspectionOptions two;
  two.rows = 250;  // each counts for a hundred
  const Plans plans(3, two);
  const std::uint64_t first = plans.seen(0), second = plans.seen(1);
  BOOST_TEST(!plans.is_forgotten(0, first));
  const std::uint64_t third = plans.seen(2);
  BOOST_TEST(!plans.is_forgotten(0, first));
  BOOST_TEST(!plans.is_forgotten(2, third));
  BOOST_TEST(plans.is_forgotten(1, second));

  InspectionOptions none;
  none.rows = 10;
  const Plans large(2, none);
  const std::uint64_t one = large.seen(0);
  BOOST_TEST(!large.is_forgotten(0, one));
  large.seen(1);
  BOOST_TEST(large.is_forgotten(0, one));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
