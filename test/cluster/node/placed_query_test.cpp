// Queries of event streams with partitions on other nodes: the table of the whole, back-pressure,
// lost nodes, errors, levels, counters.
#include <boost/test/unit_test.hpp>

#include <latch>
#include <random>
#include <string>

#include <nlohmann/json.hpp>

#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/actors/events/direct_run.hpp>
#include <troupe/actors/events/partition_host.hpp>
#include <troupe/actors/events/running_query.hpp>
#include <troupe/actors/events/table.hpp>
#include <troupe/cluster/inspect/inspection_json.hpp>
#include <troupe/cluster/inspect/inspection_reporters.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/placed.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(placed_query_test)

namespace {

using events::Batch, events::Consistency, events::PartitionCall, events::PartitionHost,
    events::Query, events::RunningQuery, events::Table, events::Value;
using Options = events::RunOptions;
using placed::says;

const events::Schema kUse{{"user", events::Type::text}, {"v", events::Type::integer}};
const std::vector<events::EventType> kTypes{{"A", kUse}, {"B", kUse}, {"C", kUse}};

constexpr const char* kPairs =
    "EVENT Pair WHEN SEQUENCE(A x, B y, 10) WHERE CorrelationKey(user, EQUAL) "
    "OUTPUT x.user AS user, x.v + y.v AS sum";
constexpr const char* kTexts[] = {
    kPairs,
    "EVENT Missed WHEN UNLESS(SEQUENCE(A x, B y, 8), C z, 4) WHERE CorrelationKey(user, EQUAL) "
    "AND x.v > 1 OUTPUT x.user AS user, root #[4, 50)",
    "EVENT P WHEN SEQUENCE(A x, B y, 10) WHERE CorrelationKey(user, EQUAL) "
    "OUTPUT x.user AS user, y.v AS v; "
    "EVENT Q WHEN ALL(P p, A a, 6) WHERE CorrelationKey(user, EQUAL) "
    "OUTPUT p.user AS user, p.v * 10 + a.v AS v; "
    "EVENT R WHEN UNLESS(P p, C c, 5) WHERE CorrelationKey(user, EQUAL) OUTPUT p.user AS who"};

Query query_of(const char* text, const Consistency& level = Consistency::middle()) {
  Query q = events::parse_query(text, kTypes);
  q.set_consistency(level);
  return q;
}

Batch uses(std::mt19937_64& random, events::Key& key, events::Time now) {
  Batch batch(kUse);
  for (int i = 0; i < 6; ++i) {
    const auto r = static_cast<events::Time>(random() % 10'000);
    const events::Time begin = now + 1 + r % 5;
    batch.insert(++key, begin, begin + 2 + r % 7,
                 {Value("u" + std::to_string(r % 5)), Value(std::int64_t{r % 4})});
    if (r % 4 == 0) batch.retract(key, begin + r % 2);
  }
  batch.guarantee = now;
  return batch;
}

/// Feeds random histories with late events and retractions to all sources; `between` is called
/// after each batch, with its number.
template <class Run>
void feed_some(
    Run& run, const Query& q, std::uint64_t seed,
    const std::function<void(int)>& between = [](int) {}) {
  std::mt19937_64 random(seed);
  events::Key key = 0;
  int fed = 0;
  for (events::Time t = 0; t < 36; t += 3)
    for (const Query::Port& source : q.sources()) {
      run.feed(source.name, uses(random, key, t));
      between(++fed);
    }
}

std::vector<Table> tables_of(const std::vector<events::History>& outputs) {
  std::vector<Table> all;
  for (const events::History& output : outputs)
    all.push_back(events::normal(events::canonical(output)));
  return all;
}

std::vector<Table> direct(const Query& q, std::uint64_t seed) {
  std::vector<events::History> outputs(q.outputs().size());
  events::DirectRun run(q, [&](std::size_t o, const Batch& batch) { outputs[o].add(batch); });
  feed_some(run, q, seed);
  run.finish();
  return tables_of(outputs);
}

std::vector<Table> run_placed(const Query& q, std::uint64_t seed, const Options& options) {
  std::vector<events::History> outputs(q.outputs().size());
  RunningQuery run(
      q, [&](std::size_t o, const Batch& batch) { outputs[o].add(batch); }, options);
  feed_some(run, q, seed);
  run.finish();
  return tables_of(outputs);
}

constexpr auto kNothing = [](std::size_t, const Batch&) {};

/// Returns the error of `f`.
template <class F>
Status error_of(F f) {
  try {
    f();
  } catch (const Error& error) { return Status(error); }
  return {};
}

/// Calls the host of the partition that has this number in its process, as its caller does.
events::PartitionAnswer call_host(Engine& engine, const std::string& caller, std::size_t number,
                                  PartitionCall call) {
  const std::string name = PartitionHost::slot_name(number % PartitionHost::kSlots);
  call.run = caller + "/" + std::to_string(number);
  Graph g;
  auto there = g.on_device("/node:b/cpu:0");
  Expr x = g.input("x", DType::u8, {kAny});
  Expr y = detail::actor_node(g, name, {x}, {{DType::u8, Shape{kAny}}}, *detail::find_actor(name),
                              std::source_location::current())[0];
  return events::read_answer(engine.run(g, {{x, events::tensor_of(call)}}, {y})[0]);
}

/// An actor that occupies a worker until it is released.
struct Held final : NodeActor {
  struct Gate {
    std::latch entered{1}, released{1};
  };
  static inline Gate* gate = nullptr;  // the one of this test
  void receive(std::span<const Tensor>, std::span<Tensor> out) override {
    gate->entered.count_down();
    gate->released.wait();
    out[0] = Tensor::scalar<std::int64_t>(1);
  }
};

/// Returns how many of this process's partitions of caller `a` are on node b.
int hosted(Engine& engine) {
  int all = 0;
  for (std::size_t n = 0; n < 512; ++n) all += call_host(engine, "a", n, {}).code == Code::ok;
  return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(partitions_on_nodes_give_the_table_of_the_whole) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Nodes nodes(3, stepped(seed), Between::simulation);
    for (const char* text : kTexts)
      for (const auto level :
           {Consistency::strong(), Consistency::middle(), Consistency{3, events::kForever}}) {
        const Query q = query_of(text, level);
        const std::vector<Table> whole = direct(q, seed);
        for (const Table& table : whole) BOOST_TEST(!table.empty(), text);
        const int window = 1 + static_cast<int>(seed % 3);
        BOOST_TEST(
            (run_placed(q, seed, {.window = window, .engine = &nodes.engine(), .nodes = {"b"}}) ==
             whole),
            text << " on b, seed " << seed);
        BOOST_TEST((run_placed(q, seed,
                               {.window = window,
                                .partitions = 2,
                                .engine = &nodes.engine(),
                                .nodes = {"b", "a", "c"}}) == whole),
                   text << " in 6 partitions, seed " << seed);
      }
  }
}

BOOST_AUTO_TEST_CASE(partitions_on_nodes_give_it_under_threads) {
  Nodes nodes(3);
  for (const char* text : kTexts)
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const Query q = query_of(text);
      BOOST_TEST((run_placed(q, seed, {.engine = &nodes.engine(), .nodes = {"b", "c"}}) ==
                  direct(q, seed)),
                 text << ", seed " << seed);
    }
}

// Only node a takes steps, so b answers nothing.
BOOST_AUTO_TEST_CASE(a_slow_node_slows_the_sources) {
  Nodes nodes(2, stepped());
  RunningQuery run(query_of(kPairs), kNothing,
                   {.window = 1, .engine = &nodes.engine(), .nodes = {"b"}});
  std::uint64_t fed = 0;
  constexpr int kBatch = 1024;
  const auto feed = [&] {
    Batch batch(kUse);
    for (int i = 0; i < kBatch; ++i)
      batch.insert(fed + static_cast<events::Key>(i), 1, 2,
                   {Value(std::string("u")), Value(std::int64_t{1})});
    const bool has_room = run.try_feed("A", batch);
    fed += has_room ? kBatch : 0;
    return has_room;
  };
  const auto feed_all = [&] {
    while (feed() || nodes.engine().take_step()) BOOST_REQUIRE(fed < 1'000'000u);
  };
  feed_all();
  // a call, and two tokens on each of three edges
  BOOST_TEST(fed <= 7u * Batch::kMost);
  BOOST_TEST(fed >= 4u * Batch::kMost);
  const std::uint64_t before = fed;
  for (int steps = 0; steps < 100'000 && !feed(); ++steps) nodes.step();
  BOOST_TEST(fed == before + kBatch);  // the node has answered
  run.finish();
  const auto counters = run.counters();
  BOOST_TEST(counters.at(0).name == "A.align");
  BOOST_TEST(counters[0].events_in == fed);
}

BOOST_AUTO_TEST_CASE(a_run_ends_while_a_node_is_silent) {
  Nodes nodes(2, stepped());
  std::size_t received = 0;
  {
    RunningQuery run(query_of(kPairs), [&](std::size_t, const Batch&) { ++received; },
                     {.engine = &nodes.engine(), .nodes = {"b"}});
    std::mt19937_64 random(1);
    events::Key key = 0;
    for (int i = 0; i < 3; ++i) {
      Batch batch = uses(random, key, i);
      BOOST_TEST(run.try_feed("A", batch));
      while (nodes.engine().take_step()) {}
    }
    BOOST_TEST(nodes.engine().impl().in_flight() == 1u);
  }
  for (int steps = 0; steps < 10'000 && nodes.step(); ++steps) {}
  BOOST_TEST(nodes.engine().impl().in_flight() == 0u);
  BOOST_TEST(received == 0u);
}

BOOST_AUTO_TEST_CASE(a_run_ends_while_a_node_is_busy_under_threads) {
  static const bool is_registered =
      (register_actor("held of placed_query_test", [] { return std::make_unique<Held>(); }), true);
  BOOST_TEST(is_registered);
  EngineOptions one;
  one.workers = 1;
  Nodes nodes(2, one);
  Held::Gate gate;
  Held::gate = &gate;
  RunHandle held;
  {
    RunningQuery run(query_of(kPairs), kNothing, {.engine = &nodes.engine(), .nodes = {"b"}});
    Graph g;
    auto there = g.on_device("/node:b/cpu:0");
    held = nodes.engine().start(
        g, {}, {actor_node<Held>(g, "held of placed_query_test", {}, {{DType::i64, Shape{}}})[0]});
    gate.entered.wait();
    std::mt19937_64 random(1);
    events::Key key = 0;
    for (int i = 0; i < 3; ++i) run.feed("A", uses(random, key, i));
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (nodes.engine().impl().in_flight() < 2 && std::chrono::steady_clock::now() < end)
      std::this_thread::yield();
    BOOST_TEST(nodes.engine().impl().in_flight() == 2u);  // also a call
  }
  gate.released.count_down();
  BOOST_TEST(held.get()[0].item<std::int64_t>() == 1);
}

BOOST_AUTO_TEST_CASE(a_node_lost_in_a_call_ends_the_query_and_is_named) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    Nodes nodes(3, stepped(seed), Between::simulation);
    RunningQuery run(query_of(kPairs), kNothing, {.engine = &nodes.engine(), .nodes = {"b", "c"}});
    std::mt19937_64 random(seed);
    events::Key key = 0;
    Batch batch = uses(random, key, 0);
    BOOST_TEST(run.try_feed("A", batch));
    while (nodes.engine().take_step()) {}
    batch = uses(random, key, 1);
    BOOST_TEST(run.try_feed("A", batch));  // starts the calls
    nodes.remove(1);
    const Status lost = error_of([&] { run.finish(); });
    BOOST_TEST((lost.code() == Code::unavailable), lost.message());
    BOOST_TEST(says(lost.message(), {"node 'b'"}), lost.message());
    BOOST_TEST((error_of([&] { run.feed("A", Batch(kUse)); }).message() == lost.message()));
    BOOST_TEST((error_of([&] { run.finish(); }).message() == lost.message()));
    BOOST_TEST(run.counters().size() > 0u);  // the last ones
  }
}

BOOST_AUTO_TEST_CASE(a_node_lost_between_calls_ends_finish_under_threads) {
  for (int round = 0; round < 3; ++round) {
    Nodes nodes(3);
    const Query q = query_of(kPairs);
    RunningQuery run(q, kNothing, {.engine = &nodes.engine(), .nodes = {"b", "c"}});
    feed_some(run, q, 1);
    run.counters();  // all calls have ended
    nodes.remove(1);
    const Status lost = error_of([&] { run.finish(); });
    BOOST_TEST((lost.code() == Code::unavailable || lost.code() == Code::not_found));
    BOOST_TEST(says(lost.message(), {"node 'b'"}), lost.message());
  }
}

BOOST_AUTO_TEST_CASE(a_node_lost_while_fed_ends_feed_under_threads) {
  Nodes nodes(2);
  const Query q = query_of(kPairs);
  RunningQuery run(q, kNothing, {.engine = &nodes.engine(), .nodes = {"b"}});
  std::mt19937_64 random(1);
  events::Key key = 0;
  events::Time now = 0;
  for (; now < 20; ++now) run.feed("A", uses(random, key, now));
  nodes.remove(1);
  const Status lost = error_of([&] {
    for (;;) run.feed("A", uses(random, key, ++now));
  });
  BOOST_TEST(says(lost.message(), {"node 'b'"}), lost.message());
}

BOOST_AUTO_TEST_CASE(a_node_that_was_cleared_ends_the_query) {
  Nodes nodes(2, stepped());
  const Query q = query_of(kPairs);
  RunningQuery run(q, kNothing, {.engine = &nodes.engine(), .nodes = {"b"}});
  feed_some(run, q, 1);
  run.counters();
  nodes[0].clear_container("", {"b"});
  BOOST_TEST(refusal([&] { run.finish(); }, Code::unavailable) ==
             "node 'b': the node has no such partition of the query: it was started again, or its "
             "states were cleared; start the query again");
}

BOOST_AUTO_TEST_CASE(operator_errors_on_a_node_reach_the_caller) {
  Nodes nodes(2, stepped());
  const Query q = query_of(kPairs);
  RunningQuery run(q, kNothing, {.engine = &nodes.engine(), .nodes = {"b"}});
  feed_some(run, q, 1);
  run.counters();
  Batch other(events::Schema{{"x", events::Type::real}});
  other.insert(1, 0, 1, {Value(0.5)});
  int failed = 0;
  for (std::size_t n = 0; n < 512; ++n)
    failed +=
        call_host(nodes.engine(), "a", n, {.batches = {{0, other}}}).code == Code::invalid_argument;
  BOOST_TEST(failed == 1);
  const std::string why = refusal([&] { run.finish(); }, Code::invalid_argument);
  BOOST_TEST(says(why, {"node 'b': pattern#", "/0 takes"}), why);
}

BOOST_AUTO_TEST_CASE(runs_that_end_free_their_operators) {
  Nodes nodes(2, stepped());
  {
    const Query q = query_of(kPairs);
    RunningQuery run(q, kNothing, {.partitions = 2, .engine = &nodes.engine(), .nodes = {"b"}});
    feed_some(run, q, 1);
    BOOST_TEST(hosted(nodes.engine()) == 2);
  }
  BOOST_TEST(hosted(nodes.engine()) == 0);
}

BOOST_AUTO_TEST_CASE(levels_of_placed_partitions_switch) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Nodes nodes(3, stepped(seed), Between::simulation);
    const Query q = query_of(kTexts[1], Consistency::strong());
    const auto run_with = [&](const Options& options, std::vector<events::Time>& effective) {
      std::vector<events::History> outputs(1);
      RunningQuery run(
          q, [&](std::size_t o, const Batch& batch) { outputs[o].add(batch); }, options);
      feed_some(run, q, seed, [&](int fed) {
        if (fed == 7) effective.push_back(run.set_consistency(Consistency::middle()));
        if (fed == 20) effective.push_back(run.set_consistency(Consistency::strong()));
      });
      run.finish();
      return tables_of(outputs);
    };
    std::vector<events::Time> here, there;
    const auto whole = run_with({.engine = &nodes.engine()}, here);
    BOOST_TEST((run_with({.engine = &nodes.engine(), .nodes = {"b", "c"}}, there) == whole));
    BOOST_TEST(here == there, boost::test_tools::per_element());
    BOOST_TEST((whole == direct(q, seed)));
  }
}

BOOST_AUTO_TEST_CASE(counters_come_from_the_nodes) {
  Nodes nodes(3, stepped());
  const Query q = query_of(kPairs);
  RunningQuery run(q, kNothing, {.engine = &nodes.engine(), .nodes = {"b", "c"}});
  feed_some(run, q, 1);
  run.finish();
  std::uint64_t given = 0, taken = 0;
  std::vector<std::string> shares;
  for (const events::Counters& c : run.counters()) {
    if (c.name.ends_with(".finalize")) given += c.events_out;
    if (!c.name.starts_with("pattern#")) continue;
    BOOST_TEST(c.events_in > 0u);
    taken += c.events_in;
    shares.push_back(c.name);
  }
  BOOST_TEST(shares == (std::vector<std::string>{"pattern#4/0", "pattern#4/1"}),
             boost::test_tools::per_element());
  BOOST_TEST(given > 0u);
  BOOST_TEST(taken == given);
}

BOOST_AUTO_TEST_CASE(the_plan_names_the_node_of_each_operator) {
  using json = nlohmann::json;
  using namespace std::chrono_literals;
  Nodes nodes(2);
  const Query q = query_of(kPairs);
  BOOST_TEST(events::placed(q, {"b", "c"}, 1).explain() ==
             "A.align: source (user text, v integer)\n"
             "A.finalize <- A.align\n"
             "B.align: source (user text, v integer)\n"
             "B.finalize <- B.align\n"
             "pattern#4/0 on b <- A.finalize, B.finalize: SEQUENCE(x, y, 10) by (x.user)\n"
             "pattern#4/1 on c <- A.finalize, B.finalize: SEQUENCE(x, y, 10) by (x.user)\n"
             "Pair.merge <- pattern#4/0, pattern#4/1: merge\n"
             "Pair <- Pair.merge: output\n");
  RunningQuery run(q, kNothing, {.engine = &nodes.engine(), .nodes = {"b"}});
  feed_some(run, q, 1);
  run.finish();
  // An inspection waits a while for the node, so the counters may be those of an earlier one.
  json match = json::object();
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (std::chrono::steady_clock::now() < end && match.value("events_in", 0) == 0) {
    const json all =
        json::parse(queries_json(nodes[1].inspect(topic_question("queries"), 3s)))["queries"];
    BOOST_REQUIRE(all.size() == 1u);
    for (const json& o : all[0]["operators"])
      if (o["name"].get<std::string>().starts_with("pattern#")) match = o;
    BOOST_TEST(all[0]["explain"].get<std::string>().find("/0 on b <- ") != std::string::npos);
  }
  BOOST_TEST(match["events_in"].get<int>() > 0);
  int described = 0;
  for (const NodeAnswer& a : nodes[1].inspect({}, 3s))
    for (const PlanSnapshot& p : a.report.engine.plans) {
      if (p.name.number < kFirstReporter) continue;
      for (const NodeAnswer& answer :
           nodes[1].inspect({.kind = NodeQuestion::Kind::plan, .plan = p.name}, 3s))
        for (const auto& actor : answer.report.plan.actors)
          if (answer.report.plan.name == p.name && actor.op == "pattern") {
            BOOST_TEST(actor.device == "/node:b/cpu:0");
            ++described;
          }
    }
  BOOST_TEST(described == 1);
}

BOOST_AUTO_TEST_CASE(wrong_places_of_a_query_are_refused) {
  Nodes nodes(2, stepped());
  const auto refused = [&](const Query& q, const Options& options, Code code) {
    return refusal([&] { RunningQuery(q, kNothing, options); }, code);
  };
  const Query q = query_of(kPairs);
  Engine& engine = nodes.engine();
  BOOST_TEST(says(refused(q, {.engine = &engine, .nodes = {"b", "x"}}, Code::not_found),
                  {"there is no node 'x'", "there are a, b"}));
  BOOST_TEST(hosted(engine) == 0);  // also those of b
  BOOST_TEST(refused(q, {.engine = &engine, .nodes = {"b", "b"}}, Code::invalid_argument) ==
             "a query names node 'b' twice; give it more partitions on each node");
  BOOST_TEST(refused(q, {.partitions = 33, .engine = &engine, .nodes = {"a", "b"}},
                     Code::invalid_argument) == "a query runs in 66 partitions; give 1 to 64");
  BOOST_TEST(refused(q, {.nodes = {"b"}}, Code::invalid_argument) ==
             "a query on node 'b' has no engine; give RunOptions::engine, that of a node of the "
             "cluster");
  Query own;
  own.output("out", own.source("s", kUse).count({"user"}));
  const char* why =
      "a query on node 'b' has operators of C++, which the node does not have; write the query as "
      "text for parse_query";
  BOOST_TEST(refused(own, {.engine = &engine, .nodes = {"b"}}, Code::invalid_argument) == why);
  Query more = q;
  more.output("out", more.source("s", kUse));
  BOOST_TEST(refused(more, {.engine = &engine, .nodes = {"b"}}, Code::invalid_argument) == why);
  Engine alone(stepped());
  BOOST_TEST(says(refused(q, {.engine = &alone, .nodes = {"b"}}, Code::not_found),
                  {"no node of a cluster"}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
