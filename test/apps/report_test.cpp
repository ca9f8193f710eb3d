// `troupe report` of runs that are under way and that have ended, and what it says of those that are not there.
#include <boost/test/unit_test.hpp>

#include <nlohmann/json.hpp>

#include <troupe/cluster/inspection_server.hpp>
#include <troupe/test/apps/node_process.hpp>
#include <troupe/test/cluster/nodes.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(report_test)

namespace {

using json = nlohmann::json;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// What is embedded in a report.
json data_of(const std::string& html) {
  const std::string open = "<script id=\"data\" type=\"application/json\">";
  const auto at = html.find(open);
  BOOST_REQUIRE(at != std::string::npos);
  return json::parse(html.substr(at + open.size(), html.find("</script>", at) - at - open.size()), nullptr, false);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_run_that_has_ended_is_reported_or_the_others_are_named) {
  Folder folder;
  Nodes nodes(1);
  const InspectionServer server(nodes[0], {});
  const auto report = [&](const std::string& id) { return run(folder.path(), {binary(), "report", id, "--node", server.address(), "--patience", "60"}); };
  const Outcome nothing = report("a/1");
  BOOST_TEST(nothing.code == 2);
  BOOST_TEST(has(nothing.error, "there is no run 'a/1': none is under way there, and none has ended"), nothing.error);

  Graph g;
  Expr n = g.input("n", DType::i64, Shape{});
  Function f = nodes.engine().compile(g, {n}, {while_loop([&](Expr i) { return i < n; }, [](Expr i) { return i + 1; }, g.constant(std::int64_t{0}), {.name = "counting"})});
  for (int i = 0; i < 3; ++i) f({Tensor::scalar(std::int64_t{1000})});
  RunHandle under_way = f.start({Tensor::scalar(INT64_MAX)});
  for (const char* id : {"a/2", "a/4"}) {
    const Outcome said = report(id);
    BOOST_REQUIRE_MESSAGE(said.code == 0, said.error);
    const json data = data_of(said.out);
    BOOST_REQUIRE(!data.is_discarded());
    BOOST_TEST(data["run"] == id);
    BOOST_REQUIRE(data["counters"]["loops"]["rows"].size() == 1u);
    BOOST_TEST(data["counters"]["loops"]["rows"][0][0] == "counting/1");
    BOOST_TEST(data["plan"]["actors"]["rows"].size() > 3u);
    // Only who hangs is accused, and only a run that is under way can hang.
    BOOST_TEST(data["diagnosis"].is_null() == (std::string(id) == "a/2"));
    if (data["diagnosis"].is_object()) BOOST_TEST(data["diagnosis"]["verdicts"].empty());
  }
  const Outcome other = report("a/5");
  BOOST_TEST(other.code == 2);
  BOOST_TEST(has(other.error, "there is no run 'a/5'; a/4 is under way, and the last that ended are a/3, a/2, a/1"), other.error);
  under_way.cancel();
  under_way.wait();

  for (int i = 0; i < 40; ++i) f({Tensor::scalar(std::int64_t{1})});  // more than are remembered
  const Outcome forgotten = report("a/2");
  BOOST_TEST(forgotten.code == 2);
  for (const char* part : {"there is no run 'a/2'; none is under way, and the last that ended are a/44, a/43, ", " and 24 more"}) BOOST_TEST(has(forgotten.error, part), forgotten.error);
  f = Function();
  under_way = RunHandle();
  const Outcome gone = report("a/44");
  BOOST_TEST(gone.code == 2);
  BOOST_TEST(has(gone.error, "run 'a/44' has ended, and its plan 'a/1' with it"), gone.error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
