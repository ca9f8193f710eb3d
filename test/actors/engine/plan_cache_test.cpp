// The plan cache: which plans it keeps, and what `close` leaves.
#include <boost/test/unit_test.hpp>

#include <memory>

#include <troupe/actors/engine/plan_cache.hpp>
#include <troupe/test/support/fake_remote_plan.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(plan_cache_test, TROUPE_ONE_THREAD)

namespace {

PlanCache::Key cache_key(std::uint64_t graph) { return {graph, 0, {}, {}}; }

std::shared_ptr<CompiledPlan> plan_of(std::uint64_t constant_bytes = 0) {
  auto compiled = std::make_shared<CompiledPlan>();
  compiled->constant_bytes = constant_bytes;
  compiled->troupe.partitions.resize(1);  // a plan without any is one that instances are made of
  return compiled;
}

}  // namespace

BOOST_AUTO_TEST_CASE(cache_finds_a_plan_by_its_whole_key) {
  PlanCache cache;
  const auto plan = plan_of();
  cache.keep({1, 2, {{3, 0}}, {{4, 1}}}, plan);
  BOOST_TEST(cache.find({1, 2, {{3, 0}}, {{4, 1}}}) == plan);
  for (const PlanCache::Key& other :
       {PlanCache::Key{2, 2, {{3, 0}}, {{4, 1}}}, PlanCache::Key{1, 3, {{3, 0}}, {{4, 1}}},
        PlanCache::Key{1, 2, {}, {{4, 1}}}, PlanCache::Key{1, 2, {{3, 0}}, {{4, 0}}}})
    BOOST_TEST(!cache.find(other));
}

BOOST_AUTO_TEST_CASE(cache_drops_the_least_recently_used_plan) {
  PlanCache cache;
  for (std::uint64_t i = 0; i < PlanCache::kMost; ++i) cache.keep(cache_key(i), plan_of());
  BOOST_TEST(cache.find(cache_key(0)));  // used again: 1 is the oldest now
  cache.keep(cache_key(PlanCache::kMost), plan_of());
  BOOST_TEST(cache.kept() == PlanCache::kMost);
  BOOST_TEST(cache.find(cache_key(0)));
  BOOST_TEST(!cache.find(cache_key(1)));
  BOOST_TEST(cache.find(cache_key(2)));
}

BOOST_AUTO_TEST_CASE(cache_bounds_constants_besides_the_newest) {
  PlanCache cache;
  cache.keep(cache_key(0), plan_of(PlanCache::kMostBytes / 2));
  cache.keep(cache_key(1), plan_of(PlanCache::kMostBytes / 2));
  cache.keep(cache_key(2), plan_of(2 * PlanCache::kMostBytes));
  BOOST_TEST(cache.kept() == 3u);
  cache.keep(cache_key(3), plan_of(1));  // 2 counts from now on
  BOOST_TEST(cache.kept() == 1u);
  BOOST_TEST(cache.find(cache_key(3)));
}

BOOST_AUTO_TEST_CASE(broken_plan_is_dropped_when_it_is_found) {
  PlanCache cache;
  const auto remote = std::make_shared<FakeRemotePlan>(1);
  const auto plan = plan_of();
  plan->troupe.remote = remote;
  cache.keep(cache_key(1), plan);
  BOOST_TEST(cache.find(cache_key(1)) == plan);
  remote->is_lost = true;
  BOOST_TEST(!cache.find(cache_key(1)));
  BOOST_TEST(cache.kept() == 0u);
}

BOOST_AUTO_TEST_CASE(close_takes_the_engine_from_all_plans) {
  PlanCache cache;
  int engine = 0;  // only its address counts
  const auto with_engine = [&] {
    auto compiled = plan_of();
    compiled->engine = reinterpret_cast<EngineImpl*>(&engine);
    cache.add(compiled);
    return compiled;
  };
  const auto first = with_engine(), second = with_engine();
  std::weak_ptr<CompiledPlan> kept_alone;
  {
    auto third = with_engine();
    kept_alone = third;
    cache.keep(cache_key(3), std::move(third));
  }
  BOOST_TEST(cache.alive().size() == 3u);
  BOOST_TEST(cache.alive()[0] == first);
  {
    const auto closed = cache.close();
    BOOST_TEST(closed.size() == 3u);
  }
  BOOST_TEST(kept_alone.expired());
  BOOST_TEST(!first->engine);
  BOOST_TEST(!second->engine);
  BOOST_TEST(cache.alive().empty());
  BOOST_TEST(cache.close().size() == 2u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
