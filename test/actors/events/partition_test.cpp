// Partitions by key: which fields divide a query, and equal output in 1 to 3 partitions.
#include <troupe/actors/events/partition.hpp>
#include <troupe/actors/events/pattern.hpp>
#include <troupe/actors/events/running_query.hpp>

#include <boost/test/unit_test.hpp>

#include <functional>
#include <random>
#include <set>
#include <string>

#include <troupe/devices/threads/worker_pool.hpp>
#include <troupe/test/actors/events/streams.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::events {

BOOST_AUTO_TEST_SUITE(partition_test)

namespace {
using namespace troupe::test;

const Schema kTrade{{"user", Type::text}, {"price", Type::real}, {"kind", Type::integer}};

using Build = std::function<void(Query&, const Stream& left, const Stream& right)>;

Query built(const Build& build, const Consistency& level = Consistency::middle()) {
  Query q;
  const Stream left = q.source("left", kTrade), right = q.source("right", kTrade);
  build(q, left, right);
  q.set_consistency(level);
  return q;
}

/// Feeds both sources, with retractions, late events and guarantees.
template <class Run>
void feed_all(Run& run, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Key key = 0;
  for (Time t = 0; t < 60; t += 3)
    for (const char* source : {"left", "right"}) {
      Batch batch(kTrade);
      for (int i = 0; i < 8; ++i) {
        const auto r = static_cast<Time>(random() % 10'000);
        const Time begin = t + 1 + r % 5;
        batch.insert(
            ++key, begin, begin + 2 + r % 7,
            {Value("u" + std::to_string(r % 6)), Value(static_cast<double>(r % 9)), in(r % 3)});
        if (r % 4 == 0) batch.retract(key, begin + r % 2);
      }
      batch.guarantee = t;
      run.feed(source, std::move(batch));
    }
  run.finish();
}

Table table_of(const Query& q, std::uint64_t seed) {
  History output;
  DirectRun run(q, [&](std::size_t, const Batch& batch) { output.add(batch); });
  feed_all(run, seed);
  return normal(canonical(output));
}

const std::vector<std::pair<const char*, Build>> kBuilds{
    {"select", [](Query& q, auto& l, auto&) { q.output("out", l.select(field("kind") > 0)); }},
    {"group",
     [](Query& q, auto& l, auto&) {
       q.output("out", l.tumbling(10).aggregate({"kind", "user"}, {count(), mean("price")}));
     }},
    {"join and group",
     [](Query& q, auto& l, auto& r) {
       q.output("out", l.join(r.select(field("kind") != 1), {"user"}).count({"user"}));
     }},
    {"renamed",
     [](Query& q, auto& l, auto& r) {
       const Stream named = l.project({{"p", field("price")}, {"name", field("user")}});
       q.output("out", named.join(r, {"name"}, {"user"}).top(2, "p", {"name"}));
     }},
    {"difference", [](Query& q, auto& l, auto& r) { q.output("out", l.subtract(r)); }},
    {"sessions of both",
     [](Query& q, auto& l, auto& r) {
       q.output("out", l.unite(r).session(3, {"user"}).count({"user"}));
     }},
    {"pattern",
     [](Query& q, auto& l, auto& r) {
       q.output("out", match(unless(sequence({event(l, "x"), event(r, "y")}, 6), event(r, "z"), 4),
                             {.where = field("x.kind") == 0,
                              .equal = {"user"},
                              .output = {{"who", field("y.user")}, {"at", field("root")}}})
                           .count({"who"}));
     }},
    {"two outputs", [](Query& q, auto& l, auto& r) {
       const Stream both = l.unite(r);
       q.output("all", both);
       q.output("out", both.aggregate({"user"}, {events::max("price")}));
     }}};
}  // namespace

BOOST_AUTO_TEST_CASE(partitions_give_the_table_of_the_whole) {
  for (const auto& [name, build] : kBuilds)
    for (const auto level :
         {Consistency::strong(), Consistency::middle(), Consistency{3, kForever}})
      for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        const Query q = built(build, level);
        const Table whole = table_of(q, seed);
        BOOST_TEST(!whole.empty(), name);
        for (const std::size_t n : {2, 3})
          BOOST_TEST((table_of(partitioned(q, n), seed) == whole), name << " in " << n);
      }
}

BOOST_AUTO_TEST_CASE(each_partition_has_a_share_of_the_rows) {
  const Query q = partitioned(built(kBuilds[1].second), 2);
  DirectRun run(q, [](std::size_t, const Batch&) {});
  feed_all(run, 1);
  std::uint64_t all = 0, shares = 0;
  for (const Counters& c : run.counters()) {
    if (c.name == "left.finalize") all = c.events_out;
    if (c.name.rfind("window#4/", 0) != 0) continue;
    BOOST_TEST(c.events_in > 0u);
    shares += c.events_in;
  }
  BOOST_TEST(all > 0u);
  BOOST_TEST(shares == all);
}

BOOST_AUTO_TEST_CASE(the_plan_names_partitions_and_their_merge) {
  const Query q =
      partitioned(built([](Query& of, auto& l, auto&) { of.output("out", l.count({"user"})); }), 2);
  BOOST_TEST(q.explain() ==
             "left.align: source (user text, price real, kind integer)\n"
             "left.finalize <- left.align\n"
             "right.align: source (user text, price real, kind integer)\n"
             "right.finalize <- right.align\n"
             "aggregate#4/0 <- left.finalize: count by (user)\n"
             "aggregate#4/1 <- left.finalize: count by (user)\n"
             "out.merge <- aggregate#4/0, aggregate#4/1: merge\n"
             "out <- out.merge: output\n");
}

BOOST_AUTO_TEST_CASE(placed_plans_give_the_table_of_the_whole) {
  for (const auto& [name, build] : kBuilds)
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      const Query q = built(build);
      const Table whole = table_of(q, seed);
      for (const auto& nodes : {std::vector<std::string>{"b"}, {"b", "c", "d"}})
        for (const std::size_t each : {1, 2}) {
          const Query there = placed(q, nodes, each);
          BOOST_TEST((table_of(there, seed) == whole), name << " on " << nodes.size());
          std::set<std::string> used;
          for (const Query::Step& step : there.steps())
            if (step.partition >= 0) used.insert(step.node);
          BOOST_TEST((used == std::set<std::string>(nodes.begin(), nodes.end())), name);
        }
    }
}

BOOST_AUTO_TEST_CASE(a_placed_plan_names_the_node_of_each_operator) {
  const Query q =
      built([](Query& of, auto& l, auto&) { of.output("out", l.count({"user"}).count()); });
  const Query one = placed(q, {"b"}, 1);
  BOOST_TEST(one.explain() ==
             "left.align: source (user text, price real, kind integer)\n"
             "left.finalize <- left.align\n"
             "right.align: source (user text, price real, kind integer)\n"
             "right.finalize <- right.align\n"
             "aggregate#4/0 on b <- left.finalize: count by (user)\n"
             "aggregate#5/0 on b <- aggregate#4/0: count by ()\n"
             "out <- aggregate#5/0: output\n");
  const PartitionShape shape = shape_of(one, 0);
  BOOST_TEST(shape.steps == (std::vector<std::size_t>{4, 5}), boost::test_tools::per_element());
  BOOST_TEST(shape.entries == (std::vector<std::size_t>{1}), boost::test_tools::per_element());
  BOOST_TEST(shape.exits == (std::vector<std::size_t>{5}), boost::test_tools::per_element());
  BOOST_TEST(refusal(
                 [&] {
                   placed(q, {"b", "c"}, 1);
                 },
                 Code::invalid_argument) ==
             "aggregate#5 relates events that agree in no field, so they cannot be divided by key; "
             "run the query in 1 partition");
}

BOOST_AUTO_TEST_CASE(a_query_without_a_common_key_is_refused) {
  const auto refused = [](const Build& build) {
    return refusal([&] { partitioned(built(build), 2); }, Code::invalid_argument);
  };
  BOOST_TEST(refused([](Query& q, auto& l, auto&) { q.output("out", l.count()); }) ==
             "aggregate#4 relates events that agree in no field, so they cannot be divided by key; "
             "run the query in 1 partition");
  BOOST_TEST(refused([](Query& q, auto& l, auto&) {
               q.output("out", l.count({"user"}).top(1, "count", {"count"}));
             }) ==
             "top#5 relates events that agree in no field, so they cannot be divided "
             "by key; run the query in 1 partition");
  BOOST_TEST(refusal([] { partitioned(built(kBuilds[0].second), 0); }, Code::invalid_argument) ==
             "a query runs in 0 partitions; give 1 to 64");
  BOOST_TEST(refusal([] { partitioned(built(kBuilds[0].second), 65); }, Code::invalid_argument) ==
             "a query runs in 65 partitions; give 1 to 64");
}

BOOST_AUTO_TEST_CASE(a_query_with_too_many_choices_of_a_key_is_refused) {
  std::vector<Field> fields;
  for (int c = 0; c < 330; ++c) fields.push_back({"c" + std::to_string(c), Type::integer});
  const Schema wide(std::move(fields));
  Query q;
  const Stream left = q.source("left", wide), right = q.source("right", wide);
  q.output("out", left.unite(right).count());
  BOOST_TEST(refusal([&] { partitioned(q, 2); }, Code::invalid_argument) ==
             "the first 100000 choices of one field of each source do not divide the query by key, "
             "and others are not tried; give the sources fewer fields, or run the query in 1 "
             "partition");
}

BOOST_AUTO_TEST_CASE(a_running_query_in_partitions_equals_a_direct_run) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const Query q = built(kBuilds[2].second, Consistency::strong());
    History output;
    WorkerPool pool(Deterministic{seed});
    RunningQuery run(q, [&](std::size_t, const Batch& batch) { output.add(batch); },
                     {.pool = &pool, .window = 2, .partitions = 3});
    feed_all(run, seed);
    BOOST_TEST((normal(canonical(output)) == table_of(q, seed)), "seed " << seed);
  }
}

BOOST_AUTO_TEST_CASE(a_change_of_level_counts_windows_once) {
  const Query q =
      built([](Query& of, auto& l, auto&) { of.output("out", l.sliding(10).count({"user"})); });
  const auto switched = [](const Query& of) {
    DirectRun run(of, [](std::size_t, const Batch&) {});
    Batch batch(kTrade);
    batch.insert(1, 5, 9, {tx("u"), Value(1.0), in(1)});
    run.feed("left", std::move(batch));
    run.set_consistency(Consistency::weak(2));
    batch = Batch(kTrade);
    batch.insert(2, 50, 52, {tx("u"), Value(1.0), in(1)});
    run.feed("left", std::move(batch));
    return run.set_consistency(Consistency::middle());
  };
  BOOST_TEST(switched(partitioned(q, 3)) == switched(q));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::events
