// Operators as actors: the output of a query is that of a direct run, in every schedule; bounded
// queues; errors; real threads.
#include <troupe/actors/events/running_query.hpp>

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <mutex>
#include <random>
#include <thread>

#include <troupe/devices/threads/worker_pool.hpp>
#include <troupe/test/actors/events/streams.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::events {

BOOST_AUTO_TEST_SUITE(running_query_test)

namespace {
using namespace troupe::test;

const Schema kPair{{"k", Type::integer}, {"v", Type::integer}};

Query join_and_count(const Consistency& level) {
  Query q;
  const Stream a = q.source("a", kPair), b = q.source("b", kPair);
  q.output("pairs", a.select(field("v") > 1).join(b, {"k"}));
  q.output("counts", a.unite(b).sliding(5).count({"k"}));
  q.set_consistency(level);
  return q;
}

/// Batches of both sources, in the order in which they are fed.
std::vector<std::pair<std::string, Batch>> batches(std::uint64_t seed, int count, int size) {
  std::mt19937_64 random(seed);
  std::vector<std::pair<std::string, Batch>> all;
  Key key = 0;
  for (int n = 0; n < count; ++n) {
    Batch batch(kPair);
    const Time now = n / 2 * 3;
    for (int i = 0; i < size; ++i) {
      const auto r = static_cast<Time>(random() % 1000);
      batch.insert(++key, now + 1 + r % 7, now + 9 + r % 5, {in(r % 4), in(r % 6)});
      if (r % 3 == 0) batch.retract(key, now + 8);
    }
    batch.guarantee = now;
    all.emplace_back(n % 2 ? "b" : "a", std::move(batch));
  }
  return all;
}

std::vector<Table> tables_of(const std::vector<History>& outputs) {
  std::vector<Table> all;
  for (const History& output : outputs) all.push_back(normal(canonical(output)));
  return all;
}

std::vector<Table> direct(const Query& q, std::uint64_t seed, int count, int size) {
  std::vector<History> outputs(2);
  DirectRun run(q, [&](std::size_t o, const Batch& batch) { outputs[o].add(batch); });
  for (auto& [source, batch] : batches(seed, count, size)) run.feed(source, std::move(batch));
  run.finish();
  return tables_of(outputs);
}
}  // namespace

BOOST_AUTO_TEST_CASE(output_equals_a_direct_run_in_every_schedule) {
  for (const auto level : {Consistency::strong(), Consistency::middle(), Consistency{4, kForever}})
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      const Query q = join_and_count(level);
      std::vector<History> outputs(2);
      WorkerPool pool(Deterministic{seed});
      {
        RunningQuery run(q, [&](std::size_t o, const Batch& batch) { outputs[o].add(batch); },
                         {.pool = &pool, .window = 1 + static_cast<int>(seed % 3)});
        std::mt19937_64 random(seed);
        for (auto& [source, batch] : batches(seed, 20, 6)) {
          run.feed(source, std::move(batch));
          for (auto steps = random() % 9; steps > 0 && pool.step(); --steps) {}
        }
        run.finish();
        const auto counters = run.counters();
        BOOST_TEST(counters.size() == q.steps().size());
        BOOST_TEST(counters.front().name == "a.align");
        BOOST_TEST(counters.front().events_in == 60u);
      }
      BOOST_TEST((tables_of(outputs) == direct(q, seed, 20, 6)), "seed " << seed);
    }
}

BOOST_AUTO_TEST_CASE(output_equals_a_direct_run_on_threads) {
  const Query q = join_and_count(Consistency::middle());
  std::vector<History> outputs(2);
  RunningQuery run(q, [&](std::size_t o, const Batch& batch) { outputs[o].add(batch); });
  std::vector<std::thread> feeders;  // one a source, as their order is free
  for (const char* source : {"a", "b"})
    feeders.emplace_back([&run, source] {
      for (auto& [to, batch] : batches(3, 40, 20))
        if (to == source) run.feed(to, std::move(batch));
    });
  for (std::thread& feeder : feeders) feeder.join();
  run.finish();
  BOOST_TEST((tables_of(outputs) == direct(q, 3, 40, 20)));
}

BOOST_AUTO_TEST_CASE(batches_follow_load) {
  Query q;
  q.output("out", q.source("s", kPair, {.inserts_only = true}).select(field("v") >= 0));
  std::vector<std::size_t> sizes;
  WorkerPool pool(Deterministic{1});
  RunningQuery run(q, [&](std::size_t, const Batch& batch) { sizes.push_back(batch.size()); },
                   {.pool = &pool});
  const auto one = [](Time t) {
    Batch batch(kPair);
    batch.insert(static_cast<Key>(t), t, t + 1, {in(1), in(1)});
    return batch;
  };
  for (Time t = 0; t < 5; ++t) {  // idle: an event is a token
    run.feed("s", one(t));
    pool.run_all();
  }
  BOOST_TEST(sizes == std::vector<std::size_t>(5, 1), boost::test_tools::per_element());
  sizes.clear();
  Time t = 5;
  for (Batch batch = one(t); run.try_feed("s", batch); batch = one(++t)) {}
  BOOST_TEST(t == 5 + 4 + 4096);  // four tokens in flight, and one that is full
  pool.run_all();
  BOOST_TEST(*std::max_element(sizes.begin(), sizes.end()) == 4096u);
  run.finish();
}

BOOST_AUTO_TEST_CASE(slow_output_slows_the_source) {
  Query q;
  q.output("out", q.source("s", kPair, {.inserts_only = true}).select(field("v") >= 0));
  WorkerPool pool(1);
  std::mutex gate;
  std::atomic<std::size_t> received{0};
  std::size_t fed = 0;
  RunningQuery run(q,
                   [&](std::size_t, const Batch& batch) {
                     const std::lock_guard open(gate);
                     received += batch.size();
                   },
                   {.pool = &pool, .window = 2});
  {
    const std::lock_guard closed(gate);
    for (bool is_open = true; is_open;) {
      Batch batch(kPair);
      for (int i = 0; i < 1000; ++i) batch.insert(fed + static_cast<Key>(i), 1, 2, {in(1), in(1)});
      is_open = run.try_feed("s", batch);
      if (is_open) fed += 1000;
      BOOST_REQUIRE(fed < 1'000'000u);
    }
  }
  run.finish();
  BOOST_TEST(received == fed);
}

BOOST_AUTO_TEST_CASE(errors_end_the_query_and_name_the_operator) {
  Query q;
  q.output("out", q.source("s", kPair));
  RunningQuery run(q, [](std::size_t, const Batch&) {});
  Batch other(Schema{{"x", Type::text}});
  other.insert(1, 0, 1, {tx("x")});
  run.feed("s", std::move(other));
  BOOST_TEST(refusal([&] { run.finish(); }, Code::invalid_argument).starts_with("s.align takes"));
  BOOST_TEST(refusal([&] { run.feed("s", Batch(kPair)); }, Code::invalid_argument) != "");
  BOOST_TEST(refusal([&] { run.feed("t", Batch(kPair)); }, Code::not_found) ==
             "a query has no source 't'; its sources are s");
}

BOOST_AUTO_TEST_CASE(errors_of_an_output_end_the_query) {
  Query q;
  q.output("out", q.source("s", kPair));
  RunningQuery run(q, [](std::size_t, const Batch&) { throw Error(Code::data_loss, "disk"); });
  BOOST_TEST(refusal([&] { run.finish(); }, Code::data_loss) == "disk");
}

BOOST_AUTO_TEST_CASE(levels_switch_between_batches) {  // C4
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const Query q = join_and_count(Consistency::strong());
    std::vector<History> outputs(2);
    WorkerPool pool(Deterministic{seed});
    RunningQuery run(q, [&](std::size_t o, const Batch& batch) { outputs[o].add(batch); },
                     {.pool = &pool});
    std::size_t fed = 0;
    for (auto& [source, batch] : batches(seed, 20, 6)) {
      run.feed(source, std::move(batch));
      if (++fed == 7) BOOST_TEST(run.set_consistency(Consistency::middle()) == kNever);
      if (fed == 14) BOOST_TEST(run.set_consistency(Consistency::strong()) > 0);
    }
    BOOST_TEST(refusal([&] { run.set_consistency({5, 3}); }, Code::invalid_argument) != "");
    run.finish();
    BOOST_TEST((tables_of(outputs) == direct(q, seed, 20, 6)), "seed " << seed);
  }
}

BOOST_AUTO_TEST_CASE(runs_end_without_finish) {
  const Query q = join_and_count(Consistency::strong());
  RunningQuery run(q, [](std::size_t, const Batch&) {});
  for (auto& [source, batch] : batches(1, 10, 5)) run.feed(source, std::move(batch));
  BOOST_TEST(run.counters().size() == q.steps().size());
}

BOOST_AUTO_TEST_CASE(options_out_of_range_are_refused) {
  const Query q = join_and_count(Consistency::strong());
  const auto start = [&](RunOptions options) {
    return refusal(
        [&] {
          RunningQuery(
              q, [](std::size_t, const Batch&) {}, options);
        },
        Code::invalid_argument);
  };
  BOOST_TEST(start({.window = 0}) ==
             "a query runs with a window of 0, 2 workers and 1 partitions; give 1 or more each");
  BOOST_TEST(start({.workers = 0}) ==
             "a query runs with a window of 4, 0 workers and 1 partitions; give 1 or more each");
  BOOST_TEST(refusal([] { RunningQuery(Query(), {}); }, Code::failed_precondition) != "");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::events
