// Resident loops of a cluster node: each answer has their iterations, by loop name and line.
#include <boost/test/unit_test.hpp>

#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <troupe/cluster/inspect/inspection_json.hpp>
#include <troupe/test/support/cluster/counting.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(resident_loops_test)

namespace {

using namespace std::chrono_literals;
using json = nlohmann::json;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A loop of node b that stays whole, and counts to `until` by `by`. Node a asks.
struct Looping {
  Nodes nodes{2, stepped(1), Between::simulation};
  Graph g;
  int line = 0;
  Function f;
  RunHandle run;
  explicit Looping(const std::string& device = {}, std::int64_t until = INT64_MAX,
                   std::int64_t by = 1) {
    auto there = g.on_device(device);
    const Expr n = g.input("n", DType::i64, Shape{}), d = g.input("d", DType::i64, Shape{});
    line = __LINE__ + 1;
    const Expr last = while_loop([&](Expr i) { return i < n; }, [&](Expr i) { return i + d; },
                                 g.constant(std::int64_t{0}), {.name = "counting"});
    f = nodes[1].engine().compile(g, {n, d}, {last});
    BOOST_TEST(has(f.explain(), ": resident, "), f.explain());
    BOOST_TEST(has(f.explain(), "CompileOptions::resident_loops = false to see"), f.explain());
    run = f.start({Tensor::scalar(until), Tensor::scalar(by)});
    step();
  }
  ~Looping() { end(nodes, run); }
  void step() {
    for (int i = 0; i < 1000; ++i) nodes.step();
  }
  RunSnapshot seen() {
    const std::vector<RunSnapshot> runs = joined_runs(nodes[0].inspect());
    BOOST_TEST_REQUIRE(runs.size() == 1u);
    return runs[0];
  }
  /// The loop in the answer about the run.
  static OpenLoop loop_of(const RunSnapshot& run) {
    for (const PartitionSnapshot& p : run.partitions)
      for (const RunPart& part : p.runs)
        if (part.loops.size() == 1) return part.loops[0];
    BOOST_REQUIRE_MESSAGE(false, "no answer has one open loop");
    return {};
  }
};

/// A row of a table, by its columns.
json row_of(const json& table, const std::string& column, const std::string& value) {
  for (const json& row : table["rows"]) {
    json o;
    for (std::size_t c = 0; c < table["columns"].size(); ++c)
      o[table["columns"][c].get<std::string>()] = row.at(c);
    if (o[column] == value) return o;
  }
  return {};
}

}  // namespace

BOOST_AUTO_TEST_CASE(inspection_has_the_iteration_of_a_resident_loop) {
  for (const char* device : {"", "/node:b/cpu:0"}) {
    Looping l(device);
    const RunSnapshot before = l.seen();
    l.step();
    const RunSnapshot now = l.seen();
    const OpenLoop then = Looping::loop_of(before), loop = Looping::loop_of(now);
    BOOST_TEST(loop.loop == "counting/1");
    BOOST_TEST(then.last > 0);
    BOOST_TEST(loop.last > then.last);
    BOOST_TEST(loop.first == loop.last);
    BOOST_TEST(has(loop.predicate, fmt::format("(resident_loops_test.cpp:{})", l.line)),
               loop.predicate);
    BOOST_TEST(before.fired() >= static_cast<std::uint64_t>(then.last));
    BOOST_TEST(now.fired() - before.fired() >= static_cast<std::uint64_t>(loop.last - then.last));
    const json told = json::parse(state_json("a", l.nodes[0].inspect()))["runs"][0];
    BOOST_TEST(told["loops"][0]["loop"] == "counting/1");
    BOOST_TEST(told["loops"][0]["last"].get<std::int64_t>() >= loop.last);
    BOOST_TEST(has(told["verdicts"][0], "loop 'counting/1' on /node:b/cpu:0 is in iteration "));
  }
}

BOOST_AUTO_TEST_CASE(counters_have_the_iterations_of_a_resident_loop) {
  Looping l;
  const PlanName plan = l.seen().plan;
  const auto ask = [&](NodeQuestion::Kind kind) {
    return l.nodes[0].inspect({.kind = kind, .plan = plan}, 3s, "b");
  };
  CounterCache cache(ask(NodeQuestion::Kind::plan).at(0).report.plan);
  const auto counted = [&] {
    cache.update(ask(NodeQuestion::Kind::counters));
    return json::parse(cache.changes(0));
  };
  std::int32_t node = -1;
  for (std::size_t a = 0; a < cache.plan().actors.size(); ++a)
    if (cache.plan().actors[a].op == "ResidentLoop") node = static_cast<std::int32_t>(a);
  BOOST_TEST_REQUIRE(node >= 0);
  const json first = counted();
  l.step();
  const json second = counted();
  const auto loop = [](const json& c) { return row_of(c["loops"], "loop", "counting/1"); };
  const auto number = [](const json& row, const char* column) {
    return row.at(column).get<std::uint64_t>();
  };
  BOOST_TEST(number(loop(first), "executions") == 1u);
  BOOST_TEST(number(loop(first), "iterations") > 0u);
  BOOST_TEST(number(loop(second), "iterations") > number(loop(first), "iterations"));
  BOOST_TEST(number(loop(second), "window") == 1u);
  const auto fires = [&](const json& c) {
    return number(row_of(c["actors"], "id", cache.id_of(node)), "fires");
  };
  BOOST_TEST(fires(second) == number(loop(second), "iterations"));  // it has not ended
  const json actor = json::parse(cache.actor_json(node, {l.seen()}, {}));
  BOOST_TEST(actor["frame"] == "counting/1");
  BOOST_TEST(actor["loop"]["iterations"] == loop(second)["iterations"]);
  BOOST_TEST(actor["open_iterations"].size() == 1u);
  BOOST_TEST(actor["bytes_in"] == 0);  // executions that have ended count

  end(l.nodes, l.run);
  l.step();
  const json after = counted();  // a cancelled execution leaves its iterations
  BOOST_TEST(number(loop(after), "iterations") >= number(loop(second), "iterations"));
}

BOOST_AUTO_TEST_CASE(an_ended_run_has_fired_each_iteration_of_a_resident_loop) {
  Looping l({}, 100'000);
  for (int i = 0; i < 1000 && !l.run.is_done(); ++i) l.step();
  BOOST_TEST_REQUIRE(l.run.is_done());
  const ClusterReport said = l.nodes[0].inspect({}, 3s, "b");
  BOOST_TEST_REQUIRE(said.at(0).report.engine.recent.size() == 1u);
  BOOST_TEST(said[0].report.engine.recent[0].fired >= 100'000u);
  BOOST_TEST(said[0].report.engine.recent[0].fired < 100'100u);
  BOOST_TEST(l.f.loops().at(0).iterations == 100'000u);
}

// Both count; one of them comes no nearer to its end.
BOOST_AUTO_TEST_CASE(diagnosis_tells_a_resident_loop_without_progress) {
  {
    Looping counts;
    for (int look = 0; look < 3; ++look) BOOST_TEST(counts.nodes[0].diagnose().empty());
  }
  Looping stands({}, 1, 0);
  const std::vector<Diagnosis> all = stands.nodes[0].diagnose();
  BOOST_TEST_REQUIRE(all.size() == 1u);
  for (const std::string& part :
       {std::string("loop 'counting/1' on /node:b/cpu:0 is in iteration "),
        fmt::format("(resident_loops_test.cpp:{})", stands.line), std::string(" is still true, ")})
    BOOST_TEST(has(all[0].text, part), all[0].text);
  BOOST_TEST(all[0].tag.starts_with("iteration "), all[0].tag);
  BOOST_TEST(all[0].tag.ends_with(" of loop 'counting/1'"), all[0].tag);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
