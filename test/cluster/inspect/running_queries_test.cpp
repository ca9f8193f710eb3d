// Operators of running queries as actors of a plan, on every node: names, edges, states, counters.
#include <boost/test/unit_test.hpp>

#include <latch>
#include <string>

#include <nlohmann/json.hpp>

#include <troupe/actors/engine/reporters.hpp>
#include <troupe/actors/events/running_query.hpp>
#include <troupe/cluster/inspect/inspection_json.hpp>
#include <troupe/cluster/inspect/inspection_reporters.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(running_queries_test)

namespace {

using json = nlohmann::json;
using namespace std::chrono_literals;
using events::field, events::Batch, events::Query, events::RunningQuery, events::Value;

const events::Schema kTrade{{"symbol", events::Type::text}, {"price", events::Type::real}};

Query busy(const events::Consistency& level) {
  Query q;
  q.output("busy", q.source("trades", kTrade)
                       .select(field("price") > 1.0)
                       .tumbling(10)
                       .aggregate({"symbol"}, {events::count("trades")}));
  q.set_consistency(level);
  return q;
}

Batch trades(events::Key first, int count, double price = 2) {
  Batch batch(kTrade);
  for (int i = 0; i < count; ++i)
    batch.insert(first + static_cast<events::Key>(i), i, i + 1,
                 {Value(std::string("x")), Value(price)});
  return batch;
}

/// The plan of the only query, as `node` knows it.
PlanName plan_of_query(const ClusterNode& node) {
  for (const NodeAnswer& a : node.inspect({}, 3s))
    for (const PlanSnapshot& p : a.report.engine.plans)
      if (p.name.number >= kFirstReporter) return p.name;
  BOOST_FAIL("no query is shown");
  return {};
}

CounterCache cache_of(const ClusterNode& node, const PlanName& plan) {
  for (const NodeAnswer& a : node.inspect({.kind = NodeQuestion::Kind::plan, .plan = plan}, 3s))
    if (a.has_answered && a.report.plan.name == plan) return CounterCache(a.report.plan);
  BOOST_FAIL("no node describes the query");
  return CounterCache({});
}

std::string actor_named(CounterCache& cache, const ClusterNode& node, const std::string& name) {
  cache.update(node.inspect({.kind = NodeQuestion::Kind::counters, .plan = cache.plan().name}, 3s));
  const auto& actors = cache.plan().actors;
  for (std::size_t i = 0; i < actors.size(); ++i)
    if (actors[i].name == name) return cache.actor_json(static_cast<std::int32_t>(i), {}, {});
  BOOST_FAIL("there is no operator " << name);
  return {};
}

json operator_of(const ClusterNode& node, const std::string& name) {
  const json all = json::parse(queries_json(node.inspect(topic_question("queries"), 3s)));
  for (const json& o : all["queries"].at(0)["operators"])
    if (o["name"] == name) return o;
  BOOST_FAIL("there is no operator " << name);
  return {};
}

}  // namespace

BOOST_AUTO_TEST_CASE(operators_are_actors_of_a_plan_on_every_node) {
  Nodes nodes(2, stepped(), Between::simulation);
  const auto run = std::make_unique<RunningQuery>(
      busy(events::Consistency::strong()), [](std::size_t, const Batch&) {},
      events::RunOptions{.engine = &nodes[1].engine(), .name = "busy trades"});
  run->feed("trades", trades(1, 5));
  const PlanName plan = plan_of_query(nodes[0]);
  BOOST_TEST(plan.owner == "b");
  const json state = json::parse(state_json("a", nodes[0].inspect({}, 3s)));
  BOOST_TEST(state["plans"].at(0)["id"] == plan.text());
  BOOST_TEST(state["plans"][0]["nodes"] == json({"b"}));

  CounterCache cache = cache_of(nodes[0], plan);
  BOOST_TEST(state["plans"][0]["actors"] == cache.plan().actors.size());
  json select = json::parse(actor_named(cache, nodes[0], "select#2"));
  BOOST_TEST(select["op"] == "select");
  BOOST_TEST(select["scope"] == "busy trades");
  BOOST_TEST(select["device"] == "/node:b/cpu:0");
  BOOST_TEST(select["state"] == "idle");
  BOOST_TEST(select["attributes"] == "(price > 1)");
  BOOST_TEST(select["inputs"].at(0)["name"] == "trades.finalize");
  BOOST_TEST(select["inputs"][0]["shape"] == "(symbol text, price real)");
  BOOST_TEST(select["fires"] == 0u);  // a strong query waits for the guarantee

  json align = operator_of(nodes[0], "trades.align");
  BOOST_TEST(align["state_size"] == 5u);
  BOOST_TEST(align["live_bytes"].get<int>() > 0);
  Batch guarantee(kTrade);
  guarantee.guarantee = 100;
  run->feed("trades", std::move(guarantee));
  select = json::parse(actor_named(cache, nodes[0], "select#2"));
  BOOST_TEST(select["fires"].get<int>() > 0);
  BOOST_TEST(select["bytes_out"].get<int>() > 0);
  align = operator_of(nodes[0], "trades.align");
  BOOST_TEST(align["state_size"] == 0u);
  BOOST_TEST(align["live_bytes"] == 0u);
  BOOST_TEST(align["peak_bytes"].get<int>() > 0);
  BOOST_TEST(align["events_out"] == 5u);
  BOOST_TEST(align["blocked"] == 5u);
  BOOST_TEST(operator_of(nodes[0], "busy")["events_out"] == 1u);
  BOOST_TEST(json::parse(with_operator(
                 actor_named(cache, nodes[0], "trades.align"),
                 nodes[0].inspect(topic_question("queries"), 3s)))["operator"]["blocked"] == 5u);
  const json queries =
      json::parse(queries_json(nodes[0].inspect(topic_question("queries"), 3s)))["queries"];
  BOOST_TEST(queries.size() == 1u);
  BOOST_TEST(queries.at(0)["node"] == "b");
  BOOST_TEST(queries[0]["explain"].get<std::string>().find(
                 "select#2 <- trades.finalize: (price > 1)") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_query_that_has_ended_is_shown_no_longer) {
  Nodes nodes(1, stepped());
  {
    RunningQuery run(busy(events::Consistency::middle()), [](std::size_t, const Batch&) {},
                     {.engine = &nodes.engine()});
    BOOST_TEST(nodes[0].inspect().at(0).report.engine.plans.size() == 1u);
    run.finish();
  }
  BOOST_TEST(nodes[0].inspect().at(0).report.engine.plans.empty());
  BOOST_TEST(
      json::parse(queries_json(nodes[0].inspect(topic_question("queries"))))["queries"].empty());
}

// The output takes nothing, so tokens wait from there up to the source.
BOOST_AUTO_TEST_CASE(an_operator_without_room_waits_for_its_consumer) {
  EngineOptions two;
  two.workers = 2;
  Nodes nodes(1, two);
  std::latch goes_on(1);
  Query q;
  q.output("out", q.source("trades", kTrade, {.inserts_only = true}).select(field("price") > 1.0));
  RunningQuery run(q, [&](std::size_t, const Batch&) { goes_on.wait(); },
                   {.window = 1, .engine = &nodes.engine()});
  events::Key key = 1;
  std::size_t unfed = 0;
  std::string state;
  json select;
  CounterCache cache = cache_of(nodes[0], plan_of_query(nodes[0]));
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (state != "waiting" && std::chrono::steady_clock::now() < end) {
    Batch batch = trades(key, Batch::kMost);
    if (run.try_feed("trades", batch)) key += Batch::kMost;
    else ++unfed;
    select = json::parse(actor_named(cache, nodes[0], "select#2"));
    state = select["state"];
  }
  BOOST_TEST(state == "waiting");
  BOOST_TEST(select["waiting_for"] == cache.id_of(3));
  const json out = json::parse(actor_named(cache, nodes[0], "out"));
  BOOST_TEST(out["state"] == "running");  // it does not answer
  BOOST_TEST(select["outputs"].at(0)["in_flight"].get<int>() > 0);
  goes_on.count_down();
  run.finish();
  BOOST_TEST(json::parse(actor_named(cache, nodes[0], "out"))["state"] == "idle");
}

BOOST_AUTO_TEST_CASE(answers_of_other_forms_are_left_out) {
  ClusterReport report(3);
  for (NodeAnswer& a : report) a.has_answered = true;
  report[0].report.scalars = R"([{"number":1},7,{"number":"x","name":"n"}])";
  report[1].report.scalars = "{";
  report[2].report.scalars =
      R"([{"number":5,"name":"n","made_ns":1,"explain":"","operators":[{"name":"o"}]}])";
  BOOST_TEST(json::parse(queries_json(report))["queries"].empty());
  report[2].report.scalars = R"([{"number":5,"name":"n","made_ns":9,"explain":"","operators":[]}])";
  report[2].member.name = "c", report[2].offset_ns = 4;
  const json queries = json::parse(queries_json(report))["queries"];
  BOOST_TEST(queries.at(0)["id"] == "c/5");
  BOOST_TEST(queries[0]["made_ns"] == 5);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
