// A node's processing of its peers' reports: counters of edges, answers that overtake each other,
// names of runs, times.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <troupe/cluster/inspect/inspection_json.hpp>
#include <troupe/devices/threads/worker_pool.hpp>
#include <troupe/test/support/programs/swapping.hpp>
#include <troupe/troupe.hpp>

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
  ClusterReport say(std::uint64_t sent, std::uint64_t received, std::int32_t window,
                    std::size_t runs) {
    for (PartitionSnapshot& p : ends.report.partitions) p.runs.resize(runs);
    ends.report.partitions[0].edges = {{1, 0, sent, 8 * sent, 0, 0}};
    ends.report.partitions[1].edges = {{1, 0, 0, 0, received, window}};
    ActorCounters c;
    c.fires = sent;
    ends.report.partitions[0].actors = {c};
    return {ends};
  }
};

nlohmann::json row_of(const CounterCache& cache, const char* table) {
  return nlohmann::json::parse(cache.changes(0))[table]["rows"].at(0);
}

}  // namespace

// Columns: id, tokens, bytes, in_flight, window.
BOOST_AUTO_TEST_CASE(tokens_left_by_ended_runs_are_not_in_flight) {
  OneEdge edge;
  CounterCache cache(edge.plan);
  cache.update(edge.say(5, 3, -1, 1));
  // outside of loops there is no credit to be out of
  BOOST_TEST(row_of(cache, "edges") == nlohmann::json({0, 5, 40, 2, 0}));
  cache.update(edge.say(5, 3, -1, 0));
  BOOST_TEST(row_of(cache, "edges") == nlohmann::json({0, 5, 40, 0, 0}));  // the run has failed
  cache.update(edge.say(9, 6, -1, 1));
  BOOST_TEST(row_of(cache, "edges") == nlohmann::json({0, 9, 72, 1, 0}));
  CounterCache of_loop(edge.plan);
  of_loop.update(edge.say(70, 20, 32, 2));  // each run has its own credit
  BOOST_TEST(row_of(of_loop, "edges") == nlohmann::json({0, 70, 560, 50, 64}));
  of_loop.update(edge.say(100, 30, 32, 2));  // the receiver was asked a moment before
  BOOST_TEST(row_of(of_loop, "edges") == nlohmann::json({0, 100, 800, 64, 64}));
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

// Also while its owner is silent, and when it has ended.
BOOST_AUTO_TEST_CASE(all_nodes_name_a_run_alike) {
  Diagnosis v;
  v.run = 9, v.id = {77, 3, {}, 0}, v.plan = {"a", 2}, v.kind = Diagnosis::Kind::no_turn,
  v.device = "/node:b/cpu:0", v.node = 4;
  Diagnosis of_another = v;
  of_another.id.number = 4;
  BOOST_TEST(keep_what_still_stands({v}, {v}).size() == 1u);
  BOOST_TEST(keep_what_still_stands({v}, {of_another}).empty());
  RunSnapshot run;
  run.run = 9, run.owner = 77, run.number = 3, run.plan = {"a", 2}, run.is_owned = false;
  const auto said = [&](const std::vector<RunSnapshot>& runs) {
    return nlohmann::json::parse(diagnosis_json("a", {v}, runs))["verdicts"].at(0);
  };
  for (const auto& runs : {std::vector<RunSnapshot>{}, std::vector{run}}) {
    BOOST_TEST(said(runs)["run"] == "a/9");
    BOOST_TEST(said(runs)["actor"] == "a/2:4");
  }
}

BOOST_AUTO_TEST_CASE(plans_have_times_of_the_answering_node) {
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
  BOOST_TEST(state["errors"][0]["run"] == "b/3");
}

// Two owners' runs may have one number.
BOOST_AUTO_TEST_CASE(events_of_a_run_over_nodes_name_one_run) {
  const auto recorded = [](PlanName plan, std::uint64_t run) {
    RecordedPlan r;
    r.name = std::move(plan);
    PartitionSnapshot& p = r.partitions.emplace_back();
    p.has_answered = true;
    // the turn is of none in particular
    p.events = {{RecordedEvent::Kind::kernel, -1, 1'000, 10, run, 0, 0},
                {RecordedEvent::Kind::turn, -1, 2'000, 10, 0, 0, 0}};
    return r;
  };
  const auto node = [](const std::string& name, std::vector<RecordedPlan> plans) {
    NodeAnswer a;
    a.has_answered = true;
    a.member.name = name;
    a.report.recorded = std::move(plans);
    return a;
  };
  const ClusterReport report = {node("a", {recorded({"a", 1}, 17)}),
                                node("b", {recorded({"a", 1}, 17), recorded({"b", 1}, 17)})};
  std::multiset<std::pair<std::string, std::string>> names;
  const auto events = nlohmann::json::parse(events_json(report, 0, 0, INT64_MAX, 100))["events"];
  for (const auto& e : events) names.emplace(e["node"], e["run"]);
  const std::multiset<std::pair<std::string, std::string>> expected = {
      {"a", "a/17"}, {"a", ""}, {"b", "a/17"}, {"b", "b/17"}, {"b", ""}, {"b", ""}};
  BOOST_TEST((names == expected));
}

// The values that lists hold have gone to the host's memory while the run waits.
BOOST_AUTO_TEST_CASE(swapped_bytes_are_reported) {
  EngineOptions options;
  swap_everything(options);
  Graph g;
  Queue jobs = g.fifo_queue("jobs", {{DType::i64, Shape{}}}, 8);
  Expr x = g.input("x", DType::f32, {1024}), n = g.input("n", DType::i64, Shape{});
  TensorArray saved(g, {.dtype = DType::f32, .size = 3});
  for (int i = 0; i < 3; ++i) saved = saved.write(i, x * static_cast<double>(i + 2));
  Expr put = jobs.enqueue({n});
  Engine engine(options);
  RunHandle run = engine.compile(g, {x}, {saved.read(jobs.dequeue()[0])})
                      .start({Tensor::of(std::vector<float>(1024, 1.0f), {1024})});
  NodeAnswer a;
  a.member.name = "a", a.has_answered = true;
  const auto swapped = [&] {
    a.report.engine = engine.snapshot();
    for (const DeviceSnapshot& d : a.report.engine.devices)
      if (d.name == "sim:0") return d.swapped;
    return std::uint64_t{0};
  };
  const auto began = std::chrono::steady_clock::now();
  while (swapped() < 4096 && std::chrono::steady_clock::now() - began < std::chrono::seconds(60)) {}
  const std::uint64_t bytes = swapped();
  BOOST_TEST(bytes >= 4096u);
  const auto state = nlohmann::json::parse(state_json("a", {a}));
  const auto& devices = state["nodes"][0]["devices"];
  BOOST_TEST(
      std::any_of(devices.begin(), devices.end(),
                  [&](const auto& d) { return d["name"] == "sim:0" && d["swapped"] == bytes; }),
      devices.dump());
  PoolCounters pool;
  pool.searches = 12, pool.finds = 7, pool.wake_ns = 1'500'000'000;
  const std::string metrics = metrics_text(a.report, {}, pool);
  for (const char* line : {"troupe_worker_searches_total 12\n", "troupe_worker_finds_total 7\n",
                           "troupe_worker_wake_seconds_total 1.5\n"})
    BOOST_TEST(metrics.find(line) != std::string::npos, metrics);
  BOOST_TEST(metrics.find(fmt::format("troupe_device_swapped_bytes{{device=\"sim:0\"}} {}\n",
                                      bytes)) != std::string::npos,
             metrics);
  engine.run(g, {{n, Tensor::scalar(std::int64_t{1})}}, {put});
  BOOST_TEST(run.get()[0].at(0) == 3.0);
}

BOOST_AUTO_TEST_CASE(memory_and_queues_of_devices_are_reported) {
  NodeAnswer a;
  a.member.name = "a", a.has_answered = true;
  DeviceSnapshot& gpu = a.report.engine.devices.emplace_back();
  gpu.name = "/node:a/gpu:0";
  gpu.in_use = 10, gpu.peak = 30, gpu.reserved = 40, gpu.free = 60, gpu.limit = 100;
  gpu.queues = {
      {.name = "compute",
       .enqueued = 12,
       .depth = 3,
       .events = 2,
       .launches = 11,
       .graphs = 4,
       .replayed = 8,
       .busy_ns = 1'500'000'000},
      {.name = "copy 0", .to_device = {2, 64}, .from_device = {1, 32}, .from_peer = {5, 16}}};
  const auto device = nlohmann::json::parse(state_json("a", {a}))["nodes"][0]["devices"][0];
  BOOST_TEST(device["reserved"] == 40u);
  BOOST_TEST(device["free"] == 60u);
  const auto& compute = device["queues"][0];
  BOOST_TEST(compute["name"] == "compute");
  BOOST_TEST(compute["busy_ns"] == 1'500'000'000u);
  BOOST_TEST(compute["enqueued"] == 12u);
  BOOST_TEST(compute["depth"] == 3u);
  BOOST_TEST(compute["events"] == 2u);
  BOOST_TEST(compute["graphs"] == 4u);
  BOOST_TEST(compute["replayed"] == 8u);
  BOOST_TEST(device["queues"][1]["to_device"]["bytes"] == 64u);
  const std::string metrics = metrics_text(a.report, {}, {});
  const auto of = [](const char* name, const char* queue, const char* value) {
    return fmt::format("troupe_device_{}{{device=\"/node:a/gpu:0\"{}}} {}\n", name, queue, value);
  };
  const char *const compute_queue = ",queue=\"compute\"",
                    *const from_peer = ",queue=\"copy 0\",direction=\"from_peer\"";
  for (const std::string& line :
       {of("memory_reserved_bytes", "", "40"), of("memory_free_bytes", "", "60"),
        of("memory_limit_bytes", "", "100"), of("queue_busy_seconds_total", compute_queue, "1.5"),
        of("queue_enqueued_total", compute_queue, "12"), of("queue_depth", compute_queue, "3"),
        of("queue_events", compute_queue, "2"), of("queue_launches_total", compute_queue, "11"),
        of("queue_graphs_total", compute_queue, "4"),
        of("queue_replayed_total", compute_queue, "8"),
        of("queue_copied_bytes_total", from_peer, "16")})
    BOOST_TEST(metrics.find(line) != std::string::npos, line << " is not in " << metrics);
}

BOOST_AUTO_TEST_CASE(metrics_have_a_histogram_of_run_durations) {
  NodeReport report;
  PlanSnapshot& plan = report.engine.plans.emplace_back();
  plan.name = {"a\"b", 1};
  RunDurationCounter counter;
  counter.add(std::chrono::microseconds(20));
  counter.add(std::chrono::milliseconds(3));
  counter.add(std::chrono::hours(2));
  plan.durations = counter.durations();
  report.engine.ended_by[static_cast<std::size_t>(Code::deadline_exceeded)] = 7;
  MembershipCounters membership;
  membership.suspicions = 3, membership.refuted = 2, membership.deaths = 1;
  const std::string metrics = metrics_text(report, {}, {}, membership);
  const std::string name = "\ntroupe_run_duration_seconds";
  for (const std::string& line :
       {name + R"(_bucket{plan="a\"b/1",le="0.0001"} 1)",
        name + R"(_bucket{plan="a\"b/1",le="0.001"} 1)",
        name + R"(_bucket{plan="a\"b/1",le="0.005"} 2)",
        name + R"(_bucket{plan="a\"b/1",le="3600"} 2)",
        name + R"(_bucket{plan="a\"b/1",le="+Inf"} 3)", name + R"(_sum{plan="a\"b/1"} 7200.00302)",
        name + R"(_count{plan="a\"b/1"} 3)",
        std::string("\ntroupe_run_endings_total{reason=\"deadline_exceeded\"} 7"),
        std::string("\ntroupe_run_endings_total{reason=\"unavailable\"} 0"),
        std::string("\ntroupe_membership_suspicions_total 3"),
        std::string("\ntroupe_membership_refutations_total 2"),
        std::string("\ntroupe_membership_deaths_total 1")})
    BOOST_TEST(metrics.find(line + "\n") != std::string::npos, line << " is not in " << metrics);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
