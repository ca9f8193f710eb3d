// Not under tsan: the HTTP library is not instrumented.
// Queries, the stream of events and the causes of a node over HTTP.
#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <string>

#include <fmt/format.h>
#include <httplib.h>
#include <nlohmann/json.hpp>

#include <troupe/actors/events/running_query.hpp>
#include <troupe/cluster/inspect/inspection_server.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(reporters_http_test)

namespace {

using json = nlohmann::json;
using namespace std::chrono_literals;

/// A server of a node, and a client of it.
struct Asked {
  explicit Asked(const ClusterNode& node) : server(node, {}), client(server.address()) {}
  json get(const std::string& path) {
    const auto answer = client.Get(path);
    BOOST_REQUIRE_MESSAGE(answer, path);
    BOOST_REQUIRE_MESSAGE(answer->status == 200, path << ": " << answer->body);
    return json::parse(answer->body);
  }
  InspectionServer server;
  httplib::Client client;
};

/// A chain of two kernels that are long enough to be recorded.
struct Chain {
  Graph g;
  Function f;
  Tensor x = Tensor::zeros(DType::f32, {300, 300});
  explicit Chain(Nodes& nodes) {
    Expr in = g.input("x", DType::f32, {300, 300});
    f = nodes.engine().compile(g, {in},
                               {g.named(matmul(g.named(matmul(in, in), "first"), in), "second")});
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(queries_and_their_operators_are_served) {
  Nodes nodes(2);
  events::Query query;
  const events::Schema trade{{"price", events::Type::real}};
  query.output("cheap", query.source("trades", trade).select(events::field("price") < 9.0));
  events::RunningQuery run(query, [](std::size_t, const events::Batch&) {},
                           {.engine = &nodes[1].engine()});
  Asked asked(nodes[0]);
  const json queries = asked.get("/api/queries")["queries"];
  BOOST_TEST(queries.size() == 1u);
  BOOST_TEST(queries.at(0)["name"] == "cheap");
  BOOST_TEST(queries[0]["operators"].size() == 4u);
  const std::string id = queries[0]["id"];
  BOOST_TEST(asked.get("/api/plan?id=" + id)["actors"]["rows"].size() == 4u);
  const json actor = asked.get("/api/actor?id=" + id + ":2");
  BOOST_TEST(actor["name"] == "select#2");
  BOOST_TEST(actor["operator"]["name"] == "select#2");
}

BOOST_AUTO_TEST_CASE(a_subscription_goes_on_from_its_place) {
  Nodes nodes(3);
  Asked asked(nodes[1]);
  std::uint64_t next = 0, taken = 0;
  std::int64_t guarantee = 0;
  const auto end = std::chrono::steady_clock::now() + 60s;
  while ((taken < 20 || guarantee == 0) && std::chrono::steady_clock::now() < end) {
    const json answer = asked.get(fmt::format("/api/stream?after={}&limit=3", next));
    BOOST_TEST(answer["lost"] == 0u);
    BOOST_TEST(answer["events"].size() <= 3u);
    next = answer["next"];
    taken += answer["events"].size();
    if (!answer["guarantee_ns"].is_null()) guarantee = answer["guarantee_ns"];
  }
  BOOST_TEST(next == taken);
  BOOST_TEST(guarantee > 0);
}

BOOST_AUTO_TEST_CASE(causes_of_a_node_are_served_beside_the_plan) {
  Nodes nodes(2);
  Chain chain(nodes);
  Asked asked(nodes[1]);  // through another node
  json node;
  const auto end = std::chrono::steady_clock::now() + 60s;
  while ((node.is_null() || node["channels"].size() < 2) &&
         std::chrono::steady_clock::now() < end) {
    chain.f({chain.x});
    const json answer = asked.get("/api/dependence");
    for (const json& n : answer["nodes"])
      if (n["node"] == "a") node = n;
  }
  BOOST_TEST(node["channels"].size() == 2u);
  BOOST_TEST(node["true_edges"].size() == 1u);
  BOOST_TEST(node["true_edges"].at(0)["from"].get<std::string>().find("first") !=
             std::string::npos);
  BOOST_TEST(node["truth"].contains("precision"));
  BOOST_TEST(node["locked"] == 1.0);  // each call fires both
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
