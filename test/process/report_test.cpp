// Not under asan and tsan: it watches processes of the binary that other suites run in one process.
// `troupe report` of runs in progress, of runs that have ended, and of unknown ones.
#include <boost/test/unit_test.hpp>

#include <algorithm>

#include <httplib.h>
#include <nlohmann/json.hpp>

#include <troupe/cluster/inspect/inspection_server.hpp>
#include <troupe/test/process/node_process.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(report_test)

namespace {

using json = nlohmann::json;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Returns the data embedded in a report.
json data_of(const std::string& html) {
  const std::string open = "<script id=\"data\" type=\"application/json\">";
  const auto at = html.find(open);
  BOOST_REQUIRE(at != std::string::npos);
  return json::parse(html.substr(at + open.size(), html.find("</script>", at) - at - open.size()),
                     nullptr, false);
}

}  // namespace

BOOST_AUTO_TEST_CASE(training_records_are_served_and_reported) {
  Folder folder;
  Nodes nodes(1);
  Records records;
  InspectionServer server(nodes[0], {});
  server.serve(records);
  for (int step = 0; step < 10; ++step) records.scalar("loss", step, 1.0 / (1 + step));
  records.text("sample", 9, "In the beginning");
  records.scalar("validation", -1, 5.0);
  httplib::Client http(server.address());
  const auto get = [&](const std::string& path) {
    const auto answer = http.Get(path);
    BOOST_REQUIRE(answer);
    return std::pair{answer->status, json::parse(answer->body, nullptr, false)};
  };
  const auto [status, all] = get("/api/scalars");
  BOOST_TEST(status == 200);
  BOOST_TEST(all["version"] == 2);
  BOOST_REQUIRE(all["series"].size() == 3u);
  BOOST_TEST(all["series"][0]["name"] == "loss");
  BOOST_TEST(all["series"][0]["points"].size() == 10u);
  const auto [again, later] = get("/api/scalars?since=7");
  BOOST_TEST(later["series"][0]["points"].size() == 2u);
  BOOST_TEST(all["series"][2]["points"].size() == 1u);
  const auto [before, from_there] = get("/api/scalars?since=-1");
  BOOST_TEST(before == 200);
  BOOST_TEST(from_there["series"][0]["points"].size() == 10u);
  BOOST_TEST(from_there["series"][2]["points"].size() == 0u);
  BOOST_TEST(get("/api/scalars?since=x").first == 400);

  Graph g;
  Expr x = g.input("x", DType::f32, {2});
  Function f = nodes.engine().compile(g, {x}, {x * 2.0});
  f({Tensor::of<float>({1, 2})});
  const Outcome said = run(
      folder.path(), {binary(), "report", "a/1", "--node", server.address(), "--patience", "60"});
  BOOST_TEST(said.code == 0, said.error);
  BOOST_TEST(data_of(said.out)["scalars"]["series"][0]["name"] == "loss");
}

BOOST_AUTO_TEST_CASE(training_records_of_one_node_are_served_by_another) {
  Nodes nodes(2);
  const InspectionServer here(nodes[0], {});
  httplib::Client http(here.address());
  http.set_read_timeout(60);
  const auto get = [&] {
    const auto answer = http.Get("/api/scalars");
    BOOST_REQUIRE(answer);
    return std::pair{answer->status, json::parse(answer->body, nullptr, false)};
  };
  BOOST_TEST(get().first == 404);
  Records records;
  records.scalar("loss", 3, 0.5);
  {
    InspectionServer there(nodes[1], {});
    there.serve(records);
    auto said = get();
    // a late answer is left out
    for (int tries = 0; tries < 1000 && said.first != 200; ++tries) said = get();
    BOOST_TEST(said.first == 200);
    BOOST_REQUIRE(said.second["series"].size() == 1u);
    BOOST_TEST(said.second["series"][0]["name"] == "loss");
    BOOST_TEST(said.second["series"][0]["node"] == "b");
  }
  BOOST_TEST(get().first == 404);  // its server is gone
}

BOOST_AUTO_TEST_CASE(a_run_that_has_ended_is_reported_or_the_others_are_named) {
  Folder folder;
  Nodes nodes(1);
  const InspectionServer server(nodes[0], {});
  const auto report = [&](const std::string& id) {
    return run(folder.path(),
               {binary(), "report", id, "--node", server.address(), "--patience", "60"});
  };
  const Outcome nothing = report("a/1");
  BOOST_TEST(nothing.code == 2);
  BOOST_TEST(
      has(nothing.error, "there is no run 'a/1': none is under way there, and none has ended"),
      nothing.error);

  Graph g;
  Expr n = g.input("n", DType::i64, Shape{});
  Function f = nodes.engine().compile(
      g, {n},
      {while_loop([&](Expr i) { return i < n; }, [](Expr i) { return i + 1; },
                  g.constant(std::int64_t{0}), {.name = "counting"})});
  for (int i = 0; i < 3; ++i) f({Tensor::scalar(std::int64_t{1000})});
  RunHandle under_way = f.start({Tensor::scalar(INT64_MAX)});
  for (const char* id : {"a/2", "a/4"}) {
    json data;
    // a late answer has no counters
    for (int tries = 0;
         tries < 20 && (!data.is_object() || data["counters"]["loops"]["rows"].size() != 1);
         ++tries) {
      const Outcome said = report(id);
      BOOST_REQUIRE_MESSAGE(said.code == 0, said.error);
      data = data_of(said.out);
      BOOST_REQUIRE(!data.is_discarded());
    }
    BOOST_TEST(data["run"] == id);
    BOOST_REQUIRE(data["counters"]["loops"]["rows"].size() == 1u);
    const json& loop = data["counters"]["loops"]["rows"][0];
    BOOST_TEST(loop[0] == "counting/1");
    BOOST_TEST(loop[3].get<std::uint64_t>() >= 3000u);  // iterations
    const json& actors = data["plan"]["actors"]["rows"];
    BOOST_TEST(std::any_of(actors.begin(), actors.end(),
                           [](const json& a) { return a[1] == "ResidentLoop"; }));
    // Only an actor that hangs is named, and only a run in progress can hang.
    BOOST_TEST(data["diagnosis"].is_null() == (std::string(id) == "a/2"));
    if (data["diagnosis"].is_object()) BOOST_TEST(data["diagnosis"]["verdicts"].empty());
  }
  const Outcome other = report("a/5");
  BOOST_TEST(other.code == 2);
  BOOST_TEST(
      has(other.error,
          "there is no run 'a/5'; a/4 is under way, and the last that ended are a/3, a/2, a/1"),
      other.error);
  under_way.cancel();
  under_way.wait();

  for (int i = 0; i < 40; ++i) f({Tensor::scalar(std::int64_t{1})});  // more than are remembered
  const Outcome forgotten = report("a/2");
  BOOST_TEST(forgotten.code == 2);
  for (const char* part :
       {"there is no run 'a/2'; none is under way, and the last that ended are a/44, a/43, ",
        " and 24 more"})
    BOOST_TEST(has(forgotten.error, part), forgotten.error);
  f = Function();
  under_way = RunHandle();
  const Outcome gone = report("a/44");
  BOOST_TEST(gone.code == 2);
  BOOST_TEST(has(gone.error, "run 'a/44' has ended, and its plan 'a/1' with it"), gone.error);
}

// Counters are of all runs of a plan; of one run the report has what it fired, and what was
// recorded of it.
BOOST_AUTO_TEST_CASE(reports_of_two_runs_of_one_plan_differ) {
  constexpr std::int64_t kLong = 1000, kShort = 10;
  Folder folder;
  Nodes nodes(1);
  const InspectionServer server(nodes[0], {});
  Graph g;
  // A product that takes long enough to be recorded, whatever the processor.
  Expr n = g.input("n", DType::i64, Shape{}), x = g.input("x", DType::f32, {256, 256});
  auto [count, last] = while_loop([&](Expr i, Expr) { return i < n; },
                                  [&](Expr i, Expr v) {
                                    return std::tuple{i + 1, g.named(matmul(v, x), "product")};
                                  },
                                  std::tuple{g.constant(std::int64_t{0}), x}, {.name = "counting"});
  Function f = nodes.engine().compile(g, {n, x}, {last});
  for (const std::int64_t iterations : {kLong, kShort})
    f({Tensor::scalar(iterations), Tensor::zeros(DType::f32, {256, 256})});
  const auto report = [&](const std::string& id) {
    json data;
    // a late answer has no events
    for (int tries = 0; tries < 20 && (!data.is_object() || data["events"]["events"].empty());
         ++tries) {
      const Outcome said = run(
          folder.path(), {binary(), "report", id, "--node", server.address(), "--patience", "60"});
      BOOST_REQUIRE_MESSAGE(said.code == 0, said.error);
      data = data_of(said.out);
      BOOST_REQUIRE(!data.is_discarded());
    }
    return data;
  };
  const json of_long = report("a/1"), of_short = report("a/2");
  const auto fired = [](const json& data) {
    for (const json& r : data["state"]["recent"])
      if (r["id"] == data["run"]) return r["fired"].get<std::int64_t>();
    return std::int64_t{-1};
  };
  BOOST_TEST(fired(of_short) >= kShort);
  BOOST_TEST(fired(of_long) - fired(of_short) >= kLong - kShort);
  // the span that its tables of counters give
  BOOST_TEST(of_short["state"]["plans"][0]["runs_started"] == 2);
  std::string product;
  for (const json& row : of_short["plan"]["actors"]["rows"])
    if (row[1] == "MatMul") product = row[0];
  BOOST_REQUIRE(!product.empty());
  const auto recorded = [&](const json& data) {
    const json& events = data["events"]["events"];
    return std::count_if(events.begin(), events.end(), [&](const json& e) {
      return e["run"] == data["run"] && e["kind"] == "kernel" && e["actor"] == product;
    });
  };
  BOOST_TEST(recorded(of_short) > 0);
  BOOST_TEST(recorded(of_short) <= kShort);
  BOOST_TEST(recorded(of_long) > recorded(of_short));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
