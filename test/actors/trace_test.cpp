// What the flight recorder keeps, and where it is written: a run that is traced, a run that fails.
#include <boost/test/unit_test.hpp>

#include <nlohmann/json.hpp>

#include <troupe/test/devices/refusal.hpp>
#include <troupe/test/examples/process.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {
namespace {

using json = nlohmann::json;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A loop on one device that another adds to.
Expr over_two(Graph& g, int iterations) {
  auto [n, s] = while_loop([=](Expr i, Expr) { return i < iterations; },
                           [&](Expr i, Expr v) {
                             auto there = g.on_device("cpu:1");
                             return std::tuple{i + 1, v + 1.0};
                           },
                           std::tuple{g.constant(0), g.ones(DType::f32, {2})});
  return s;
}

std::size_t count(const json& trace, const std::string& category) {
  std::size_t n = 0;
  for (const json& e : trace["traceEvents"]) n += e.contains("cat") && e["cat"] == category && e["ph"] == "X";
  return n;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(trace_test)

BOOST_AUTO_TEST_CASE(a_traced_run_is_in_a_file_with_its_firings_and_tokens) {
  Folder folder;
  Graph g;
  Expr y = over_two(g, 10);
  Engine engine({.deterministic = true});
  Function f = engine.compile(g, {}, {y});
  f({}, {.trace = folder / "trace.json"});
  while (engine.take_step()) {}
  const json trace = json::parse(read_file(folder / "trace.json"), nullptr, false);
  BOOST_REQUIRE(!trace.is_discarded());
  BOOST_TEST(count(trace, "firing") > 20u);
  BOOST_TEST(count(trace, "turn") > 0u);
  BOOST_TEST(count(trace, "send") > 0u);
  BOOST_TEST(count(trace, "send") == count(trace, "receive"));
  f({});
  while (engine.take_step()) {}
  BOOST_TEST(folder.files().size() == 1u);  // that one run
}

BOOST_AUTO_TEST_CASE(what_led_to_a_failure_is_written) {
  Folder folder;
  Graph g;
  Expr index = g.input("index", DType::i64, Shape{1});
  Expr y = gather(over_two(g, 10), index);
  std::vector<LogRecord> log;
  EngineOptions options;
  options.deterministic = true;
  options.flight = folder.path();
  options.log = [&](const LogRecord& r) { log.push_back(r); };
  Engine engine(options);
  Function f = engine.compile(g, {index}, {y});
  f({Tensor::of<std::int64_t>({1})});
  while (engine.take_step()) {}
  BOOST_TEST(folder.files().empty());
  BOOST_TEST(log.empty());
  refusal([&] { f({Tensor::of<std::int64_t>({7})}); }, Code::out_of_range);
  while (engine.take_step()) {}
  BOOST_REQUIRE(folder.files().size() == 1u);
  const json trace = json::parse(read_file(folder / folder.files()[0]), nullptr, false);
  BOOST_REQUIRE(!trace.is_discarded());
  BOOST_TEST(count(trace, "send") > 0u);
  BOOST_TEST(count(trace, "firing") == 0u);  // nobody traced
  BOOST_REQUIRE(log.size() == 1u);
  BOOST_TEST((log[0].level == LogRecord::Level::error));
  BOOST_TEST(has(log[0].run, "/2"), log[0].run);
  BOOST_TEST(has(log[0].actor, "trace_test.cpp:"), log[0].actor);
  BOOST_TEST(log[0].time_ns > 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
