// Not under asan and tsan: it watches processes of the binary that other suites run in one process.
// `troupe trace`: the trace of two nodes, and of a device with a stream.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include <troupe/cluster/inspect/inspection_server.hpp>
#include <troupe/test/process/cluster.hpp>
#include <troupe/test/process/connection.hpp>
#include <troupe/test/support/chrome_trace.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(traces_test)

namespace {

using json = nlohmann::json;
using namespace std::chrono_literals;

/// A second's trace that has slices of all these categories: another one, for a minute, where a
/// machine that stalls has had none.
json trace_with(const std::vector<std::string>& wanted, const Folder& folder,
                const std::string& url) {
  json trace;
  std::map<std::string, int> slices;
  const auto has_all = [&] {
    return std::all_of(wanted.begin(), wanted.end(),
                       [&](const std::string& kind) { return slices.contains(kind); });
  };
  const auto asked = std::chrono::steady_clock::now();
  do {
    const Outcome wrote = run(folder.path(), {binary(), "trace", "--node", url, "--patience", "60",
                                              "--seconds", "1", "-o", folder / "trace.json"});
    BOOST_TEST(wrote.code == 0, wrote.error);
    BOOST_TEST(has(wrote.out, " events; covers "), wrote.out);
    trace = json::parse(read_file(folder / "trace.json"), nullptr, false);
    BOOST_REQUIRE(!trace.is_discarded());
    slices.clear();
    for (const json& e : trace["traceEvents"])
      if (e["ph"] == "X" || e["ph"] == "b") ++slices[e["cat"].get<std::string>()];
  } while (!has_all() && std::chrono::steady_clock::now() - asked < 60s);
  for (const std::string& kind : wanted) BOOST_TEST(slices[kind] > 0, "no slice is a " << kind);
  return trace;
}

/// A loop without end whose state goes to the other device and back in each iteration; with a
/// product of some work, so that a second of it is no file of hundreds of megabytes.
RunHandle goes_to_and_fro(Engine& engine, const char* other) {
  Graph g;
  Expr x = g.input("x", DType::f32, {192, 192});
  auto [i, last] = while_loop([](Expr n, Expr) { return n < 1'000'000'000; },
                              [&](Expr n, Expr v) {
                                Expr product = matmul(v, x);
                                auto there = g.on_device(other);
                                return std::tuple{n + 1, product + cast(n, DType::f32)};
                              },
                              std::tuple{g.constant(0), x});
  return engine.compile(g, {x}, {i, last}).start({Tensor::zeros(DType::f32, {192, 192})});
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_trace_has_the_arrows_of_tokens, *boost::unit_test::label("stock_zmq")) {
  Cluster c;
  RunHandle run = goes_to_and_fro(c.a->engine(), "/node:b/cpu:0");
  // b waits for each token of a's
  const json trace = trace_with({"firing", "turn", "send", "receive", "wait"}, c.folder, c.url);
  std::set<std::string> begins, ends;
  std::set<int> processes;
  for (const json& e : trace["traceEvents"]) {
    if (e["ph"] == "s") begins.insert(e["id"].get<std::string>());
    if (e["ph"] == "f") ends.insert(e["id"].get<std::string>());
    if (e["ph"] != "X") continue;
    processes.insert(e["pid"].get<int>());
    BOOST_TEST(e["args"]["run"] == "a/1", e.dump());  // b's too, as everywhere
  }
  BOOST_TEST(!begins.empty());
  BOOST_TEST((begins == ends));
  // processes of one host have one clock, and each its own count of ticks since it looked at that
  BOOST_TEST(well_formed(trace, 1000).arrows > 0);
  BOOST_TEST(processes.size() == 2u);
  // b's events carry the run's number of its owner, in a report, too.
  const auto is_of_b = [](const json& events) {
    return std::any_of(events.begin(), events.end(),
                       [](const json& e) { return e["node"] == "b" && e["run"] == "a/1"; });
  };
  bool is_named = false;
  for (const auto began = std::chrono::steady_clock::now();
       !is_named && std::chrono::steady_clock::now() - began < 60s;) {
    const Outcome report = c.verb({"report", "a/1"});
    BOOST_REQUIRE_MESSAGE(report.code == 0, report.error);
    const std::string open = "<script id=\"data\" type=\"application/json\">";
    const auto at = report.out.find(open);
    BOOST_REQUIRE(at != std::string::npos);
    const json data = json::parse(
        report.out.substr(at + open.size(), report.out.find("</script>", at) - at - open.size()),
        nullptr, false);
    BOOST_REQUIRE(!data.is_discarded());
    BOOST_TEST(data["run"] == "a/1");
    is_named = data["events"].is_object() && is_of_b(data["events"]["events"]);
  }
  BOOST_TEST(is_named);
  json few;
  do few = c.get("/api/events?limit=50");  // except that no node has answered in time
  while (few["events"].size() < 50);
  BOOST_TEST(few["events"].size() == 50u);
  for (const json& gap : few["lost"]) BOOST_TEST(gap["until_ns"] >= few["events"][0]["t_ns"]);
  json lost;  // a recorder keeps a moment of a loop like this one
  while (lost.empty()) lost = c.get("/api/events")["lost"];
  BOOST_TEST(has(lost[0]["track"], "/node:"));
  BOOST_TEST(c.get("/api/events?since=" + std::to_string(lost[0]["until_ns"].get<std::int64_t>() +
                                                         1'000'000'000'000))["lost"]
                 .empty());
  run.cancel();
  run.wait();
}

// Two products that are ready together are for workers.
BOOST_AUTO_TEST_CASE(a_trace_has_the_kernels_of_workers) {
  Folder folder;
  EngineOptions options;
  options.workers = 2;
  Nodes nodes(1, options);
  const InspectionServer server(nodes[0], {});
  Graph g;
  Expr x = g.input("x", DType::f32, {192, 192});
  auto [i, last] = while_loop([](Expr n, Expr) { return n < 1'000'000'000; },
                              [&](Expr n, Expr v) {
                                return std::tuple{n + 1, matmul(v, x) + matmul(x, v)};
                              },
                              std::tuple{g.constant(0), x});
  RunHandle run =
      nodes.engine().compile(g, {x}, {i, last}).start({Tensor::zeros(DType::f32, {192, 192})});
  const json trace = trace_with({"firing", "turn", "kernel"}, folder, server.address());
  for (const json& e : trace["traceEvents"])
    if (e["ph"] == "X" && e["cat"] == "kernel") {
      BOOST_TEST(has(e["name"], "(traces_test.cpp:"), e["name"]);
      BOOST_TEST(e["dur"].get<double>() > 0);
    }
  well_formed(trace);
  run.cancel();
  run.wait();
}

// To the device and from it, in each iteration.
BOOST_AUTO_TEST_CASE(a_trace_of_a_device_with_a_stream_has_its_copies) {
  Folder folder;
  EngineOptions options;
  options.default_device = "sim:0";
  Nodes nodes(1, options);
  const InspectionServer server(nodes[0], {});
  RunHandle run = goes_to_and_fro(nodes.engine(), "cpu:0");
  const json trace = trace_with({"copy", "firing", "send", "receive"}, folder, server.address());
  bool is_named = false;
  for (const json& e : trace["traceEvents"])
    is_named = is_named || (e["ph"] == "X" && e["cat"] == "copy" && has(e["name"], "copy ") &&
                            has(e["name"], "(traces_test.cpp:"));
  BOOST_TEST(is_named);
  well_formed(trace);
  run.cancel();
  run.wait();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
