// What a node makes of what others have said: counters of edges, answers that overtake each other, names of runs, times.
#include <boost/test/unit_test.hpp>

#include <nlohmann/json.hpp>

#include <troupe/cluster/inspection_json.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(counters_test)

namespace {

/// A token's way between two partitions of plan a/1, and what its ends say of it.
struct OneEdge {
  PlanDescription plan;
  NodeAnswer ends;
  OneEdge() {
    plan.name = {"a", 1};
    plan.actors.resize(2);
    plan.actors[1].partition = 1;
    EdgeDescription& e = plan.edges.emplace_back();
    e.to = 1, e.receive = 0, e.is_cut = true;
    ends.has_answered = true;
    ends.report.partitions.resize(2);
    for (PartitionSnapshot& p : ends.report.partitions) p.has_answered = true;
  }
  ClusterReport say(std::uint64_t sent, std::uint64_t received, std::int32_t window, std::size_t runs) {
    for (PartitionSnapshot& p : ends.report.partitions) p.runs.resize(runs);
    ends.report.partitions[0].edges = {{1, 0, sent, 8 * sent, 0, 0}};
    ends.report.partitions[1].edges = {{1, 0, 0, 0, received, window}};
    ActorCounters c;
    c.fires = sent;
    ends.report.partitions[0].actors = {c};
    return {ends};
  }
};

nlohmann::json row_of(const CounterCache& cache, const char* table) { return nlohmann::json::parse(cache.changes(0))[table]["rows"].at(0); }

}  // namespace

// Columns: id, tokens, bytes, in_flight, window.
BOOST_AUTO_TEST_CASE(what_runs_that_are_over_left_behind_is_not_in_flight) {
  OneEdge edge;
  CounterCache cache(edge.plan);
  cache.update(edge.say(5, 3, -1, 1));
  BOOST_TEST(row_of(cache, "edges") == nlohmann::json({0, 5, 40, 2, 0}));  // outside of loops there is no credit to be out of
  cache.update(edge.say(5, 3, -1, 0));
  BOOST_TEST(row_of(cache, "edges") == nlohmann::json({0, 5, 40, 0, 0}));  // the run has failed
  cache.update(edge.say(9, 6, -1, 1));
  BOOST_TEST(row_of(cache, "edges") == nlohmann::json({0, 9, 72, 1, 0}));
  CounterCache of_loop(edge.plan);
  of_loop.update(edge.say(70, 20, 32, 2));  // each run has its own credit
  BOOST_TEST(row_of(of_loop, "edges") == nlohmann::json({0, 70, 560, 50, 64}));
}

BOOST_AUTO_TEST_CASE(an_answer_that_is_late_takes_no_counter_back) {
  OneEdge edge;
  CounterCache cache(edge.plan);
  const std::uint64_t first = cache.begin(), second = cache.begin();
  cache.update(edge.say(9, 9, 32, 1), second);
  cache.update(edge.say(5, 4, 32, 1), first);
  BOOST_TEST(row_of(cache, "edges") == nlohmann::json({0, 9, 72, 0, 32}));
  BOOST_TEST(row_of(cache, "actors").at(1) == 9);
}

// While its owner is silent a run has the number that another node gave it.
BOOST_AUTO_TEST_CASE(a_verdict_is_of_the_same_run_whoever_numbers_it) {
  Verdict v;
  v.run = 5, v.owner = 77, v.number = 3, v.is_owned = false, v.plan = {"a", 2}, v.kind = Verdict::Kind::no_turn, v.device = "/node:b/cpu:0", v.node = 4;
  Verdict of_owner = v, of_another = v;
  of_owner.run = 9, of_owner.is_owned = true;
  of_another.number = 4;
  BOOST_TEST(keep_what_still_stands({v}, {of_owner}).size() == 1u);
  BOOST_TEST(keep_what_still_stands({v}, {of_another}).empty());
  RunSnapshot run;
  run.run = 9, run.owner = 77, run.number = 3, run.plan = {"a", 2};
  const auto said = [&](const std::vector<RunSnapshot>& runs) { return nlohmann::json::parse(diagnosis_json("a", {v}, runs))["verdicts"].at(0); };
  BOOST_TEST(said({run})["run"] == "a/9");
  BOOST_TEST(said({})["run"] == "a/shared-3");  // it has ended meanwhile
  for (const auto& runs : {std::vector<RunSnapshot>{}, std::vector{run}}) BOOST_TEST(said(runs)["actor"] == "a/2:4");
}

BOOST_AUTO_TEST_CASE(plans_were_made_by_the_clock_of_who_is_asked) {
  NodeAnswer a;
  a.has_answered = true;
  a.member.name = "a", a.offset_ns = 5'000;
  PlanSnapshot p;
  p.name = {"a", 1}, p.made_ns = 12'000;
  a.report.engine.plans = {p};
  EndedRun failed;
  failed.run = 3, failed.is_owned = false, failed.plan = {"b", 1}, failed.error = "it was wrong";
  a.report.engine.errors = {failed};
  const auto state = nlohmann::json::parse(state_json("b", {a}));
  BOOST_TEST(state["plans"][0]["made_ns"] == 7'000);
  BOOST_TEST(state["errors"][0]["run"] == "b/shared-3");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
